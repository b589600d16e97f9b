// Handles ModelStreamInfer with one reactor per stream, which carries any number of requests. See
// stream_session.h.
#pragma once

#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/inference/frontend.h"
#include "server/net/grpc_1_51/transfer_watch.h"

namespace sluice {

// Handles a call of the raw method. Never blocks. `frontend` and `idle` outlive the call.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StartStreamInfer(
    InferenceFrontend* frontend, TransferWatch* idle, grpc::CallbackServerContext* context);

}  // namespace sluice
