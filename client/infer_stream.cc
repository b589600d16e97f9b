#include "client/infer_stream.h"

#include <utility>

#include "base/status_macros.h"
#include "client/stream_error.h"

namespace sluice::client {
namespace {

using inference::ModelInferResponse;
using inference::ModelStreamInferResponse;

bool IsFinal(const ModelInferResponse& response) {
  const auto found = response.parameters().find("triton_final_response");
  return found != response.parameters().end() && found->second.bool_param();
}

}  // namespace

InferStream::InferStream(inference::GRPCInferenceService::Stub* stub, const CallOptions& options,
                         const inference::ModelInferRequest& request) {
  Prepare(options, &context_);
  stream_ = stub->ModelStreamInfer(&context_);
  // If a write fails, Next returns the error.
  stream_->Write(request);
  stream_->WritesDone();
}

InferStream::~InferStream() {
  Cancel();
  if (!finished_) stream_->Finish();
}

absl::StatusOr<std::optional<ModelInferResponse>> InferStream::Next() {
  if (finished_) return std::nullopt;
  ModelStreamInferResponse message;
  if (!stream_->Read(&message)) {
    SLUICE_RETURN_IF_ERROR(Finish());
    return std::nullopt;
  }
  SLUICE_RETURN_IF_ERROR(StreamError(message));
  answered_ |= IsFinal(message.infer_response());
  return std::move(*message.mutable_infer_response());
}

absl::Status InferStream::Finish() {
  finished_ = true;
  const grpc::Status status = stream_->Finish();
  if (!status.ok()) return ToStatus(status, context_);
  if (answered_) return absl::OkStatus();
  return absl::InternalError("the server ended the stream before the final response");
}

}  // namespace sluice::client
