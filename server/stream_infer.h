// ModelStreamInfer: one reactor per stream, any number of requests on it.
//
// Each request gets one response, in the order of completion; its error goes into that response and
// the stream lives on. At most kMaxPipelined requests are in progress or wait to be written: then
// nothing more is read until the caller has taken a response, so a slow reader bounds itself.
//
// The reactor (owned by gRPC until its OnDone) and the sinks (owned by the engine) share a session.
// Its mutex guards everything; the session's pointer to the reactor becomes null when Finish is
// called, which happens once:
//   * OK when the caller closed its side and every response is written;
//   * CANCELLED or DEADLINE_EXCEEDED in OnCancel or when a write fails: the engine is told to
//   cancel
//     and the sinks find no reactor. OnCancel must finish, or else Server::Shutdown would hang.
// Reads and writes that are still in progress then complete with ok = false and touch nothing but
// the session, which the reactor keeps alive.
#pragma once

#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/edge.h"

namespace sluice {

inline constexpr int kMaxPipelined = 64;

// The handler of the raw method. Never blocks. `edge` outlives the call.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StartStreamInfer(
    Edge* edge, grpc::CallbackServerContext* context);

}  // namespace sluice
