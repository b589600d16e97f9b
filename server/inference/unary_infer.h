// ModelInfer: one reactor per call.
//
// A call has three actors: the reactor (owned by gRPC until its OnDone), the engine with the call's
// sink, and the caller, who may cancel. Its states:
//
//     reading --refused--> finished          Finish in the handler, with the error
//     reading --admitted-> running           the sink is with the engine
//     running --done-----> finished          Finish by the sink, on the reply thread
//     running --cancelled> finished          Finish in OnCancel; the engine ends the request later,
//                                            and its sink finds the call gone
//
// The sink holds the only pointer to the reactor that leads to Finish, and whoever exchanges it for
// null calls Finish: exactly once, and never on a deleted reactor, because gRPC calls OnDone only
// after Finish and after OnCancel returned. OnCancel has to call Finish itself, or else
// Server::Shutdown would hang until the engine let go of the request.
#pragma once

#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/inference/frontend.h"

namespace sluice {

// The handler of the raw method. Never blocks. `edge` outlives the call.
grpc::ServerUnaryReactor* StartUnaryInfer(Edge* edge, grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response);

}  // namespace sluice
