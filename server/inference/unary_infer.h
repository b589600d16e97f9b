// Handles ModelInfer with one reactor per call.
//
// Three parties act on a call: the reactor (owned by gRPC until its OnDone), the engine with the
// call's sink, and the caller, who may cancel. The states of a call:
//
//     reading --refused--> finished          Finish with the error, on the preparing thread
//     reading --cancelled> finished          Finish in OnCancel; encoding texts stops soon, and a
//                                            request that is submitted anyway is cancelled
//     reading --admitted-> running           the engine has the sink
//     running --done-----> finished          Finish by the sink, on the reply thread
//     running --cancelled> finished          Finish in OnCancel; the engine ends the request later,
//                                            and its sink finds the call gone
//
// Only the sink has a pointer to the reactor. The thread that exchanges this pointer for null calls
// Finish, so Finish runs exactly once. It never runs on a deleted reactor, because gRPC calls
// OnDone only after Finish and after OnCancel has returned. OnCancel must call Finish itself, or
// Server::Shutdown would hang until the engine ended the request.
#pragma once

#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/inference/frontend.h"

namespace sluice {

// Handles a call of the raw method. Never blocks. `frontend` outlives the call. `caller` is nullptr
// if callers are not identified.
grpc::ServerUnaryReactor* StartUnaryInfer(InferenceFrontend* frontend,
                                          grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response,
                                          std::shared_ptr<const Caller> caller);

}  // namespace sluice
