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
// The sink holds the only pointer to the reactor that leads to Finish. The thread that exchanges it
// for null calls Finish: exactly once, and never on a deleted reactor, because gRPC calls OnDone
// only after Finish and after OnCancel returned. OnCancel has to call Finish itself, or else
// Server::Shutdown would hang until the engine ended the request.
#pragma once

#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/inference/frontend.h"

namespace sluice {

// Handles a call of the raw method. Never blocks. `frontend` outlives the call. `caller` is nullptr
// where callers are not identified.
grpc::ServerUnaryReactor* StartUnaryInfer(InferenceFrontend* frontend,
                                          grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response,
                                          std::shared_ptr<const Caller> caller);

}  // namespace sluice
