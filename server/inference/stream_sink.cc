#include "server/inference/stream_sink.h"

#include <string>
#include <utility>

#include "server/calls/wire.h"
#include "server/common/status.h"
#include "server/inference/stream_session.h"

namespace sluice {
namespace {

using inference::ModelStreamInferResponse;

void SetFinal(bool final, ModelStreamInferResponse* response) {
  auto& parameters = *response->mutable_infer_response()->mutable_parameters();
  parameters["triton_final_response"].set_bool_param(final);
}

}  // namespace

StreamSink::StreamSink(ReplySpec spec, ReplyThread* replies, std::shared_ptr<StreamSession> session,
                       Ticket ticket, MemoryShare unread)
    : builder_(std::move(spec)),
      replies_(replies),
      session_(std::move(session)),
      ticket_(ticket),
      unread_(std::move(unread)),
      streams_(builder_.spec().request->max_tokens > 1) {}

void StreamSink::OnTokens(const GeneratedToken* tokens, int count) {
  bool post = false;
  {
    MutexLock lock(&mu_);
    arriving_.Append(tokens, count, builder_.spec().request->num_top);
    if (streams_) post = !std::exchange(posted_, true);
  }
  if (post) replies_->Post(shared_from_this());
}

void StreamSink::OnDone(const absl::Status& status, Reply reply, const RequestTrace& trace) {
  bool post = false;
  {
    MutexLock lock(&mu_);
    done_ = true;
    status_ = status;
    reply_ = std::move(reply);
    trace_ = trace;
    post = !std::exchange(posted_, true);
  }
  if (post) replies_->Post(shared_from_this());
}

void StreamSink::Deliver() { session_->Offer(shared_from_this()); }

StreamSink::Arrived StreamSink::Take() {
  taken_.Clear();
  MutexLock lock(&mu_);
  posted_ = false;
  std::swap(taken_, arriving_);
  if (done_) {
    taken_reply_ = std::move(reply_);
    builder_.set_trace(trace_);
  }
  return {done_, status_};
}

ModelStreamInferResponse StreamSink::Answer(const Arrived& arrived) {
  if (!arrived.status.ok()) return Error(arrived.status);
  ModelStreamInferResponse message;
  builder_.Build(taken_, arrived.done ? &taken_reply_ : nullptr, message.mutable_infer_response());
  taken_reply_ = Reply();  // released before the message is serialised, to hold one copy less
  return message;
}

ModelStreamInferResponse StreamSink::Error(const absl::Status& status) {
  ModelStreamInferResponse message;
  message.set_error_message(ToGrpc(status).error_message());
  message.mutable_infer_response()->set_id(builder_.spec().request->id);
  auto& parameters = *message.mutable_infer_response()->mutable_parameters();
  parameters["error_code"].set_string_param(absl::StatusCodeToString(status.code()));
  parameters["error_reason"].set_string_param(std::string(NameOf(ReasonOf(status))));
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    parameters["retry_pushback_ms"].set_int64_param(
        PushbackMs(PushbackOf(status, session_->Pushback())));
  }
  return message;
}

StreamSink::Response StreamSink::Next() {
  Response response;
  ModelStreamInferResponse message;
  if (answered_) {
    response.last = true;
    builder_.Identify(message.mutable_infer_response());
  } else {
    const Arrived arrived = Take();
    message = Answer(arrived);
    answered_ = arrived.done;
    response.more_at_once =
        arrived.done && arrived.status.ok() && builder_.spec().request->empty_final_response;
    response.last = arrived.done && !response.more_at_once;
  }
  SetFinal(response.last, &message);
  const absl::Status serialized = Serialize(message, &response.bytes);
  if (serialized.ok()) return response;
  // Serialisation fails only if the response is too large. The error response is small.
  message = Error(serialized);
  SetFinal(true, &message);
  Serialize(message, &response.bytes).IgnoreError();
  return {response.bytes, /*last=*/true, /*more_at_once=*/false};
}

}  // namespace sluice
