// A request whose response arrives in pieces.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "client/call.h"
#include "proto/inference.grpc.pb.h"

namespace sluice::client {

// A call of ModelStreamInfer with one request. One thread may call Next, any thread Cancel.
class InferStream {
 public:
  // Sends the request. Does not keep `stub`. The deadline covers the whole call.
  InferStream(inference::GRPCInferenceService::Stub* stub, const CallOptions& options,
              const inference::ModelInferRequest& request);
  // Cancels the call if it has not ended.
  ~InferStream();

  // Returns the next response, or nothing after the last. An error of the call or of the request
  // ends the stream. The error of a request has the code that the server names, or Unknown if the
  // server names none.
  absl::StatusOr<std::optional<inference::ModelInferResponse>> Next();

  void Cancel() { context_.TryCancel(); }

 private:
  absl::Status Finish();

  grpc::ClientContext context_;
  std::unique_ptr<
      grpc::ClientReaderWriter<inference::ModelInferRequest, inference::ModelStreamInferResponse>>
      stream_;
  bool answered_ = false;  // the final response has arrived
  bool finished_ = false;
};

}  // namespace sluice::client
