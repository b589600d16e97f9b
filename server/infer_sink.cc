#include "server/infer_sink.h"

#include <utility>

#include "server/reply.h"

namespace sluice {

void InferSink::OnTokens(const GeneratedToken* tokens, int count) {
  tokens_.insert(tokens_.end(), tokens, tokens + count);
}

void InferSink::OnDone(const absl::Status& status, Reply reply, const RequestTrace& trace) {
  status_ = status;
  reply_ = std::move(reply);
  replies_->Post(shared_from_this());
}

void InferSink::Deliver() {
  inference::ModelInferResponse response;
  if (status_.ok()) BuildResponse(spec_, tokens_, reply_, &response);
  Answer(status_, std::move(response));
}

}  // namespace sluice
