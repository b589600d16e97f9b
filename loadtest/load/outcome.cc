#include "loadtest/load/outcome.h"

#include <grpcpp/impl/codegen/proto_utils.h>

namespace sluice::load {
Outcome Judge::Decide(const CallRecord& record, const Answer& answer) {
  if (answer.code != grpc::StatusCode::OK) return OfError(answer);
  if (answers_ != nullptr && !Agrees(record, answer)) return Outcome::kWrong;
  // A stream has no deadlines, and an answer may race with its deadline, so compare the times here.
  const bool late = deadline_.count() > 0 && record.done - record.scheduled > deadline_;
  return late ? Outcome::kDeadline : Outcome::kOk;
}

Outcome Judge::OfError(const Answer& answer) {
  {
    const MutexLock lock(&mu_);
    ErrorSample& sample = errors_[answer.code];
    if (sample.count++ == 0) sample.first_message = answer.message;
  }
  switch (answer.code) {
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return Outcome::kRejected;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      // Without a deadline of the user, the deadline is the end of the drain.
      return deadline_.count() > 0 ? Outcome::kDeadline : Outcome::kUnfinished;
    default:
      return Outcome::kError;
  }
}

bool Judge::Agrees(const CallRecord& record, const Answer& answer) {
  if (answer.parsed != nullptr) {
    return answers_->Agrees(record.payload, HashAnswer(*answer.parsed));
  }
  inference::ModelInferResponse response;
  grpc::ByteBuffer bytes(
      *answer.bytes);  // a copy that shares the slices, because parsing consumes it
  const bool parsed =
      grpc::SerializationTraits<inference::ModelInferResponse>::Deserialize(&bytes, &response).ok();
  return parsed && answers_->Agrees(record.payload, HashAnswer(response));
}

Errors Judge::errors() const {
  const MutexLock lock(&mu_);
  return errors_;
}

}  // namespace sluice::load
