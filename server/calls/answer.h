// Unary methods that answer at once. For services whose methods are raw (see wire.h).
#pragma once

#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/calls/wire.h"
#include "server/common/status.h"

namespace sluice {

// Parses the request, calls handle(request, &response), which returns absl::Status, serialises the
// response and finishes the call.
template <typename Request, typename Response, typename Handle>
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer& request, grpc::ByteBuffer* response,
                                 Handle handle) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  Request message;
  Response answer;
  absl::Status status = Parse(request, &message);
  if (status.ok()) status = handle(message, &answer);
  if (status.ok()) status = Serialize(answer, response);
  reactor->Finish(FinishStatus(status, absl::ZeroDuration(), context));
  return reactor;
}

}  // namespace sluice
