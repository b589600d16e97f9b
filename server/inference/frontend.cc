#include "server/inference/frontend.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/interruption.h"
#include "base/out_of_memory.h"
#include "base/status_macros.h"
#include "base/work_memory.h"
#include "server/calls/wire.h"
#include "server/common/memory_limits.h"
#include "server/common/peer.h"
#include "server/common/status.h"
#include "server/protocol/request/peek.h"

namespace sluice {
namespace {

constexpr absl::Duration kMinPushback = absl::Milliseconds(10);
constexpr absl::Duration kMaxPushback = absl::Seconds(10);
constexpr std::chrono::milliseconds kPushbackAge{50};
// A deadline counts as passed this long before the daemon's copy of it. The deadline is sent as a
// duration, so the copy is later than the caller's own by the transit time and by rounding.
constexpr std::chrono::milliseconds kDeadlineSlack{20};

// Converts a deadline on the wall clock, as gRPC gives it, to the monotonic clock. Both clocks are
// read at once, so only a step of the wall clock between the two reads could falsify the result.
MonoTime ToMonotonic(std::chrono::system_clock::time_point deadline, MonoTime now) {
  const auto wall = std::chrono::system_clock::now();
  // A deadline more than a year away counts as none, which also prevents an overflow.
  if (deadline - wall > std::chrono::hours(24 * 365)) return MonoTime::max();
  return now + std::chrono::duration_cast<nanoseconds>(std::max(deadline - wall, {}));
}

// The number of copies of a message's content while it is read: the message and the request.
constexpr int64_t kCopies = 2;

// A message up to this size is read and validated on the thread where it arrives.
constexpr size_t kBytesAtOnce = 4096;

// The number of messages that may wait to be read. gRPC's memory quota includes them.
constexpr int64_t kMaxWaitingMessages = 4096;

// The header in which a gateway names its own caller.
constexpr char kClientHeader[] = "sluice-client";

// Returns whether the name in kClientHeader counts. Another peer could invent names to get more
// turns. A process of this machine can have as many connections as it wants anyway.
bool IsGateway(const CallContext& call) {
  return IsLocal(call.peer) || (call.caller != nullptr && call.caller->is_gateway());
}

// Returns the owner for taking turns: the caller, or the address of an anonymous caller; if the
// peer is a gateway, followed by the gateway's name for its own caller.
std::string OwnerOf(const CallContext& call) {
  const bool named = call.caller != nullptr && call.caller->name() != kAnonymous;
  std::string owner = named ? call.caller->name() : AddressOf(call.peer);
  if (!call.client.empty() && IsGateway(call)) absl::StrAppend(&owner, " ", call.client);
  return owner;
}

// Returns the name that a gateway states for its own caller: 1 to 64 printable characters of ASCII.
// Others are ignored, because only turns depend on it.
std::string StatedClient(const grpc::CallbackServerContext& context) {
  constexpr size_t kMostBytes = 64;
  const auto stated = context.client_metadata().find(kClientHeader);
  if (stated == context.client_metadata().end()) return "";
  std::string name(stated->second.data(), stated->second.size());
  const bool valid = name.size() <= kMostBytes && std::ranges::all_of(name, absl::ascii_isgraph);
  return valid ? name : "";
}

// The parts of an error message about memory.
struct Shortage {
  const char* what;    // the subject that needs memory
  const char* others;  // the reason for the shortage
  const char* option;  // the option of the budget
  Reason reason;
};

constexpr Shortage kWhileRead = {
    .what = "the request, while it is read,",
    .others = "too many requests of this caller or of all callers are being read",
    .option = "server.memory.limit_bytes",
    .reason = Reason::kMemory};

// Returns an error with the reason of the shortage, or with kRequest if the bytes are more than
// half of the budget: an owner that takes them in several steps never gets them (FairShare).
absl::Status NoRoom(const MemoryBudget& budget, int64_t bytes, const Shortage& shortage) {
  const std::string need = absl::StrCat(shortage.what, " may need ", bytes, " bytes; ");
  if (bytes > budget.limit() / 2) {
    return ReasonError(
        Reason::kRequest,
        absl::StrCat(need, "this is more than half of the ", budget.limit(), " for all callers (",
                     shortage.option, "), which one caller may never get. Send a smaller request"));
  }
  return ReasonError(shortage.reason,
                     absl::StrCat(need, shortage.others, " (", shortage.option, "); retry later"));
}

int64_t DrawSeed() {
  thread_local absl::BitGen generator;  // seeded from the system's entropy
  return absl::Uniform<int64_t>(absl::IntervalClosed, generator, 0, INT64_MAX);
}

// Returns the number of tokens in the request's prompts, plus the most that its rows may generate,
// plus the tokens counted for scoring its candidates.
int64_t TokensOf(const Request& request) {
  const int64_t prompts =
      std::accumulate(request.spec->lengths.begin(), request.spec->lengths.end(), int64_t{0});
  return prompts + int64_t{request.rows()} * request.spec->max_tokens + ScoringTokens(request);
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

InferenceFrontend::InferenceFrontend(ServingContext& context, const GrpcOptions& options)
    : max_reply_bytes_(options.max_message_bytes),
      context_(context),
      preparations_({.threads = PreparationThreads(), .max_waiting = kMaxWaitingMessages}) {
  SetLimits(options);
}

void InferenceFrontend::SetLimits(const GrpcOptions& options) {
  max_rows_ = options.max_rows;
  stream_stall_timeout_ = std::chrono::microseconds(options.stream_stall_timeout_us);
}

CallContext InferenceFrontend::Arrive(const grpc::CallbackServerContext& context) const {
  CallContext call;
  call.received = context_.clock->Now();
  call.rpc_deadline = ToMonotonic(context.deadline(), call.received);
  call.peer = context.peer();
  call.client = StatedClient(context);
  call.fresh_seed = DrawSeed();
  const auto traceparent = context.client_metadata().find("traceparent");
  if (traceparent != context.client_metadata().end()) {
    const grpc::string_ref value = traceparent->second;
    call.trace = ParseTraceparent({value.data(), value.size()});
  }
  return call;
}

absl::Status InferenceFrontend::Enter(CallContext* call) {
  call->owner = OwnerOf(*call);
  if (context_.overload.refuses_requests()) {
    absl::Status status = context_.overload.Refusal();
    Refuse(status);
    LogRefusal(status, *call);
    return status;
  }
  if (call->caller == nullptr) return absl::OkStatus();
  absl::Status status = call->caller->TakeRequest(call->received);
  if (!status.ok()) {
    Refuse(status);
    LogRefusal(status, *call);
  }
  return status;
}

absl::Status InferenceFrontend::CheckQueue(const grpc::ByteBuffer& bytes, const CallContext& call) {
  grpc::Slice slice;
  if (!bytes.TrySingleSlice(&slice).ok()) return absl::OkStatus();
  const std::optional<RequestPeek> peek =
      PeekAtRequest({reinterpret_cast<const char*>(slice.begin()), slice.size()});
  if (!peek.has_value()) return absl::OkStatus();
  const int most_urgent = call.caller == nullptr ? call.max_priority : call.caller->max_priority();
  return context_.engine->StandingRefusal(peek->model_name, peek->model_version, call.owner,
                                          std::max(kDefaultPriority, most_urgent), call.received,
                                          call.rpc_deadline);
}

// The search may find texts where there are none, which is harmless.
bool InferenceFrontend::IsQuick(const grpc::ByteBuffer& bytes) {
  constexpr std::string_view kText = "text_input";
  if (bytes.Length() > kBytesAtOnce) return false;
  grpc::Slice slice;
  if (!bytes.TrySingleSlice(&slice).ok() && !bytes.DumpToSingleSlice(&slice).ok()) return false;
  const std::string_view text(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return text.find(kText) == std::string_view::npos;
}

absl::Status InferenceFrontend::PrepareLater(const CallContext& call,
                                             std::function<absl::Status()> check,
                                             std::function<void()> prepare) {
  auto job = [this, deadline = call.rpc_deadline, check = std::move(check),
              prepare = std::move(prepare)] {
    const Interruptible scope([&]() -> absl::Status {
      SLUICE_RETURN_IF_ERROR(check());
      if (context_.clock->Now() < deadline) return absl::OkStatus();
      return ReasonError(Reason::kDeadline, "the deadline passed before the request was queued");
    });
    prepare();
  };
  if (preparations_.Post(call.owner, std::move(job))) return absl::OkStatus();
  absl::Status status =
      ReasonError(Reason::kTooBusy, "too many messages are waiting to be read; retry later");
  Refuse(status);
  LogRefusal(status, call);
  return status;
}

absl::Status InferenceFrontend::Read(const grpc::ByteBuffer& bytes, const CallContext& call,
                                     inference::ModelInferRequest* message, MemoryShare* parsed) {
  const auto admit = [&](const WireCost& cost) {
    if (bytes.Length() <= kBytesAtOnce) return absl::OkStatus();
    const int64_t needed = kCopies * cost.bytes;
    *parsed = context_.parsed.Take(call.owner, needed);
    return *parsed ? absl::OkStatus() : NoRoom(context_.parsed, needed, kWhileRead);
  };
  absl::Status status = OrOutOfMemory([&] { return Parse(bytes, message, wire_limits(), admit); });
  if (!status.ok()) {
    Refuse(status);
    LogRefusal(status, call);
  }
  return status;
}

absl::StatusOr<RequestId> InferenceFrontend::Submit(const inference::ModelInferRequest& message,
                                                    CallContext call, MakeSink make_sink) {
  const WorkMemoryAccount account(&context_.parsed, call.owner, [this](int64_t bytes) {
    return NoRoom(context_.parsed, bytes, kWhileRead);
  });
  int64_t taken = 0;  // tokens taken from the caller's limit; returned if the request is refused
  const auto make = [&](const Engine::Named& named) -> absl::StatusOr<Engine::Submission> {
    SLUICE_RETURN_IF_ERROR(CheckInterruption());
    const std::shared_ptr<const Model>& model = named.model;
    call.model = model;
    call.head = named.head;
    absl::StatusOr<ValidRequest> valid = ValidateAndCharge(message, &call, &taken);
    if (!valid.ok()) {
      context_.OnRejected(model->name, ReasonOf(valid.status()));
      return valid.status();
    }
    MemoryShare unread = context_.unread.Take(call.owner, valid->reply.max_bytes);
    if (!unread) return RefuseUnread(*model, valid->reply.max_bytes);
    return Engine::Submission{std::move(valid->request),
                              make_sink(std::move(valid->reply), std::move(unread))};
  };
  absl::StatusOr<RequestId> id = OrOutOfMemory([&] {
    return context_.engine->ResolveAndSubmit(message.model_name(), message.model_version(), make,
                                             call.received);
  });
  if (id.ok()) {
    if (taken > 0) call.caller->CountTokens(taken);
    return id;
  }
  LogRefusal(id.status(), call);
  if (call.model == nullptr) {
    const absl::Status running = context_.health.CheckRunning();
    const absl::Status status =
        running.ok() ? context_.models.WithFailedLoad(id.status(), message.model_name(),
                                                      message.model_version())
                     : running;
    context_.OnRejected("", ReasonOf(status));
    return status;
  }
  if (taken > 0) call.caller->ReturnTokens(taken);
  return id;
}

absl::StatusOr<ValidRequest> InferenceFrontend::ValidateAndCharge(
    const inference::ModelInferRequest& message, CallContext* call, int64_t* taken) const {
  const RequestLimits limits{.max_rows = max_rows_, .max_reply_bytes = max_reply_bytes_};
  if (call->caller == nullptr) return Validate(message, limits, *call);
  const Caller& caller = *call->caller;
  call->max_priority = caller.max_priority();
  int64_t least = 0;
  call->before_encoding = [&](int64_t tokens) {
    least = tokens;
    return caller.TakeTokens(tokens, call->received);
  };
  SLUICE_ASSIGN_OR_RETURN(ValidRequest valid, Validate(message, limits, *call));
  if (least > 0) caller.ReturnTokens(least);
  const int64_t tokens = TokensOf(valid.request);
  if (absl::Status status = caller.TakeTokens(tokens, call->received); !status.ok()) {
    if (least > 0) caller.TakeTokens(least, call->received).IgnoreError();
    return status;
  }
  *taken = tokens;
  valid.request.caller = caller.name();
  valid.request.owner = call->owner;
  valid.request.anonymous = caller.name() == kAnonymous;
  return valid;
}

absl::Status InferenceFrontend::RefuseUnread(const Model& model, int64_t bytes) {
  const absl::Status status = NoRoom(
      context_.unread, bytes,
      {.what = "the reply",
       .others = "too many answers of this caller or of all callers wait to be computed or read",
       .option = "server.grpc.max_unread_bytes",
       .reason = Reason::kUnreadAnswers});
  context_.OnRejected(model.name, ReasonOf(status));
  return status;
}

void InferenceFrontend::Refuse(const absl::Status& status) {
  context_.OnRejected("", ReasonOf(status));
}

void InferenceFrontend::LogRefusal(const absl::Status& status, const CallContext& call) {
  LineRate& lines = call.caller == nullptr ? refusal_lines_ : call.caller->account()->refusal_lines;
  int64_t unlogged = 0;
  if (!lines.Take(call.received, &unlogged)) return;
  const bool named = call.caller != nullptr;
  // Without memory, the refusal has no line.
  OrOutOfMemory([&] {
    context_.log->Info("refused a request",
                       {{"caller", named ? call.caller->name() : std::string(kAnonymous)},
                        {"peer", AddressOf(call.peer)},
                        {"reason", NameOf(ReasonOf(status))},
                        {"error", std::string(status.message())},
                        {"unlogged_before", unlogged}});
    return absl::OkStatus();
  }).IgnoreError();
}

absl::Status InferenceFrontend::GiveUp(RequestId id, MonoTime deadline) {
  if (deadline != MonoTime::max() && context_.clock->Now() + kDeadlineSlack >= deadline) {
    return absl::DeadlineExceededError("the deadline passed");
  }
  context_.engine->Cancel(id);
  return absl::CancelledError("cancelled by the caller");
}

absl::Duration InferenceFrontend::Pushback() {
  MutexLock lock(&mu_);
  const MonoTime now = context_.clock->Now();
  if (estimated_ != MonoTime{} && now - estimated_ < kPushbackAge) return pushback_;
  nanoseconds wait{0};
  for (const ModelStats& stats : context_.engine->Stats()) {
    const bool waits = stats.estimated_wait > nanoseconds(0);
    wait = std::max(wait, waits ? stats.estimated_wait : stats.estimated_drain);
  }
  pushback_ = std::clamp(absl::FromChrono(wait), kMinPushback, kMaxPushback);
  estimated_ = now;
  return pushback_;
}

}  // namespace sluice
