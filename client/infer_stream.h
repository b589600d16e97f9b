// One request whose answer comes in pieces.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "client/call.h"
#include "proto/inference.grpc.pb.h"

namespace sluice::client {

// A call of ModelStreamInfer with one request. Next is for one thread, Cancel for any.
class InferStream {
 public:
  // Sends the request. `stub` is not kept. The deadline is that of the whole call.
  InferStream(inference::GRPCInferenceService::Stub* stub, const CallOptions& options,
              const inference::ModelInferRequest& request);
  // Cancels what has not ended.
  ~InferStream();

  // The next response, or nothing after the last. An error is the call's or the request's, the
  // latter with the code that the server names (Unknown when it names none); it is the end.
  absl::StatusOr<std::optional<inference::ModelInferResponse>> Next();

  void Cancel() { context_.TryCancel(); }

 private:
  absl::Status Finish();

  grpc::ClientContext context_;
  std::unique_ptr<
      grpc::ClientReaderWriter<inference::ModelInferRequest, inference::ModelStreamInferResponse>>
      stream_;
  bool answered_ = false;  // the response that calls itself final was there
  bool finished_ = false;
};

}  // namespace sluice::client
