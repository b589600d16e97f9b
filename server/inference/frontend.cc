#include "server/inference/frontend.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <numeric>
#include <utility>

#include "absl/random/random.h"
#include "base/status_macros.h"
#include "server/common/status.h"

namespace sluice {
namespace {

constexpr absl::Duration kMinPushback = absl::Milliseconds(10);
constexpr absl::Duration kMaxPushback = absl::Seconds(10);
constexpr std::chrono::milliseconds kPushbackAge{50};
// How long before the daemon's copy of a deadline the deadline counts as passed. The deadline is
// sent as a duration, so the copy is later than the caller's own by the time on the way and by
// rounding.
constexpr std::chrono::milliseconds kDeadlineSlack{20};

// Converts a deadline, which gRPC gives on the wall clock, to the monotonic clock. It does so at
// once, so that only a step of the wall clock within these few instructions could falsify it.
MonoTime ToMonotonic(std::chrono::system_clock::time_point deadline, MonoTime now) {
  const auto wall = std::chrono::system_clock::now();
  // More than a year away counts as no deadline, which also keeps the sum from overflowing.
  if (deadline - wall > std::chrono::hours(24 * 365)) return MonoTime::max();
  return now + std::chrono::duration_cast<nanoseconds>(std::max(deadline - wall, {}));
}

int64_t DrawSeed() {
  thread_local absl::BitGen generator;  // seeded from the system's entropy
  return absl::Uniform<int64_t>(absl::IntervalClosed, generator, 0, INT64_MAX);
}

// Returns the number of tokens in the request's prompts plus the most that its rows may generate.
int64_t TokensOf(const Request& request) {
  const int64_t prompts =
      std::accumulate(request.spec->lengths.begin(), request.spec->lengths.end(), int64_t{0});
  return prompts + int64_t{request.rows()} * request.spec->max_tokens;
}

bool ParseHex(std::string_view text, uint8_t* bytes) {
  for (size_t i = 0; i < text.size(); i += 2) {
    const char* end = text.data() + i + 2;
    if (std::from_chars(text.data() + i, end, bytes[i / 2], 16).ptr != end) return false;
  }
  return true;
}

}  // namespace

TraceContext ParseTraceparent(std::string_view header) {
  TraceContext trace;
  const bool shaped =
      header.size() == 55 && header.substr(0, 3) == "00-" && header[35] == '-' && header[52] == '-';
  if (shaped && ParseHex(header.substr(3, 32), trace.trace_id) &&
      ParseHex(header.substr(36, 16), trace.parent_id) &&
      ParseHex(header.substr(53, 2), &trace.flags)) {
    return trace;
  }
  return TraceContext{};
}

CallContext InferenceFrontend::Arrive(const grpc::CallbackServerContext& context) const {
  CallContext call;
  call.received = clock_->Now();
  call.rpc_deadline = ToMonotonic(context.deadline(), call.received);
  call.fresh_seed = DrawSeed();
  const auto traceparent = context.client_metadata().find("traceparent");
  if (traceparent != context.client_metadata().end()) {
    const grpc::string_ref value = traceparent->second;
    call.trace = ParseTraceparent({value.data(), value.size()});
  }
  return call;
}

absl::StatusOr<std::shared_ptr<const Caller>> InferenceFrontend::Identify(
    const grpc::CallbackServerContext& context) {
  if (callers_ == nullptr) return std::shared_ptr<const Caller>();
  absl::StatusOr<std::shared_ptr<const Caller>> caller = callers_->Identify(context);
  if (!caller.ok()) Refuse(caller.status());
  return caller;
}

absl::Status InferenceFrontend::Enter(const CallContext& call) {
  if (call.caller == nullptr) return absl::OkStatus();
  absl::Status status = call.caller->TakeRequest(call.received);
  if (!status.ok()) Refuse(status);
  return status;
}

absl::StatusOr<RequestId> InferenceFrontend::Submit(const inference::ModelInferRequest& message,
                                                    CallContext call, MakeSink make_sink) {
  const RequestLimits limits{.max_rows = max_rows_, .max_reply_bytes = max_reply_bytes_};
  int64_t taken = 0;  // the tokens taken from the caller's limit
  const auto make =
      [&](const std::shared_ptr<const Model>& model) -> absl::StatusOr<Engine::Submission> {
    call.model = model;
    absl::StatusOr<ValidRequest> valid = Validate(message, limits, call);
    if (!valid.ok()) {
      refusals_->OnRefused(model->name, ReasonOf(valid.status()));
      return valid.status();
    }
    if (call.caller != nullptr) {
      const int64_t tokens = TokensOf(valid->request);
      SLUICE_RETURN_IF_ERROR(TakeTokens(tokens, call));
      taken = tokens;
      valid->request.caller = call.caller->name();
    }
    return Engine::Submission{std::move(valid->request), make_sink(std::move(valid->reply))};
  };
  absl::StatusOr<RequestId> id =
      engine_->ResolveAndSubmit(message.model_name(), message.model_version(), make, call.received);
  if (id.ok()) return id;
  if (call.model == nullptr) {
    const absl::Status status = health_->ready()
                                    ? id.status()
                                    : absl::UnavailableError("not ready: models are being loaded");
    refusals_->OnRefused("", ReasonOf(status));
    return status;
  }
  if (taken > 0) call.caller->ReturnTokens(taken);
  return id;
}

absl::Status InferenceFrontend::TakeTokens(int64_t tokens, const CallContext& call) {
  absl::Status status = call.caller->TakeTokens(tokens, call.received);
  if (!status.ok()) refusals_->OnRefused(call.model->name, ReasonOf(status));
  return status;
}

void InferenceFrontend::Refuse(const absl::Status& status) {
  refusals_->OnRefused("", ReasonOf(status));
}

absl::Status InferenceFrontend::GiveUp(RequestId id, MonoTime deadline) {
  if (deadline != MonoTime::max() && clock_->Now() + kDeadlineSlack >= deadline) {
    return absl::DeadlineExceededError("the deadline passed");
  }
  engine_->Cancel(id);
  return absl::CancelledError("cancelled by the caller");
}

absl::Duration InferenceFrontend::Pushback() {
  MutexLock lock(&mu_);
  const MonoTime now = clock_->Now();
  if (estimated_ != MonoTime{} && now - estimated_ < kPushbackAge) return pushback_;
  nanoseconds drain{0};
  for (const ModelStats& stats : engine_->Stats()) drain = std::max(drain, stats.estimated_drain);
  pushback_ = std::clamp(absl::FromChrono(drain), kMinPushback, kMaxPushback);
  estimated_ = now;
  return pushback_;
}

}  // namespace sluice
