#include "tests/engine/runner/history.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/engine/runner/harness.h"

namespace sluice {
namespace {

// Returns the reason why this end is wrong, or "".
std::string WrongEnd(const RecordedCall& call, const RecordedCall::End& end,
                     const Circumstances& happened) {
  switch (end.status.code()) {
    case absl::StatusCode::kOk:
      return "";
    case absl::StatusCode::kCancelled:
      return call.cancelled ? "" : "was cancelled without a call of Cancel";
    case absl::StatusCode::kDeadlineExceeded:
      return end.at >= call.deadline ? "" : "expired before its deadline";
    case absl::StatusCode::kUnavailable:
      return happened.kill ? "" : "was lost";
    case absl::StatusCode::kInternal:
      return happened.faults ? "" : "failed without a fault";
    default:
      return absl::StrCat("ended as ", end.status.ToString());
  }
}

std::string WrongRefusal(const RecordedCall& call, const Circumstances& happened) {
  switch (call.refused.code()) {
    case absl::StatusCode::kResourceExhausted:
      return happened.overload || call.deadline != MonoTime::max() ? "" : "was refused with room";
    case absl::StatusCode::kDeadlineExceeded:
      return call.refused_at >= call.deadline ? "" : "was refused before its deadline";
    case absl::StatusCode::kUnavailable:
      return happened.drain || happened.kill ? "" : "was refused without a drain";
    case absl::StatusCode::kNotFound:
      return happened.exchange ? "" : "did not find its model";
    default:
      return absl::StrCat("was refused as ", call.refused.ToString());
  }
}

std::string WrongTokens(const RecordedCall& call, bool ok) {
  if (call.out_of_order) return "has tokens out of order";
  for (size_t row = 0; row < call.tokens.size(); ++row) {
    const std::vector<int32_t> alone = Greedy(call.rows[row], call.max_tokens, call.vocab);
    const std::vector<int32_t>& got = call.tokens[row];
    if (got.size() > alone.size()) return "has too many tokens";
    if (ok && got.size() < alone.size()) return "lost tokens";
    if (!std::equal(got.begin(), got.end(), alone.begin()))
      return "has different tokens than by itself";
  }
  return "";
}

// Returns the problem with the call, or "".
std::string Wrong(const RecordedCall& call, const Circumstances& happened) {
  if (!call.refused.ok()) {
    const bool told = !call.ends.empty() || call.after_end > 0 ||
                      std::any_of(call.tokens.begin(), call.tokens.end(),
                                  [](const auto& row) { return !row.empty(); });
    return told ? "was answered though it was refused" : WrongRefusal(call, happened);
  }
  if (call.ends.size() != 1) return absl::StrCat("ended ", call.ends.size(), " times");
  if (call.after_end > 0) return "had tokens after its end";
  const RecordedCall::End& end = call.ends.front();
  if (std::string wrong = WrongEnd(call, end, happened); !wrong.empty()) return wrong;
  if (std::string wrong = WrongTokens(call, end.status.ok()); !wrong.empty()) return wrong;
  const bool late = happened.most_wait && end.at - call.submitted > *happened.most_wait;
  return late ? absl::StrCat("waited ", (end.at - call.submitted).count(), " ns") : "";
}

}  // namespace

nanoseconds MostWait(const std::vector<RecordedCall>& calls, nanoseconds step) {
  int64_t steps = 1;  // the one in progress
  for (const RecordedCall& call : calls) {
    steps += std::ssize(call.rows) * (1 + int64_t{call.max_tokens});
  }
  return steps * step;
}

std::vector<std::string> Violations(const std::vector<RecordedCall>& calls,
                                    const Circumstances& circumstances) {
  std::vector<std::string> found;
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string wrong = Wrong(calls[i], circumstances);
    if (!wrong.empty()) found.push_back(absl::StrCat("call ", i, " ", wrong));
  }
  return found;
}

HistorySink::HistorySink(RecordedCall call, const Clock* clock)
    : clock_(clock), call_(std::move(call)) {
  call_.tokens.resize(call_.rows.size());
}

void HistorySink::OnTokens(const GeneratedToken* tokens, int count) {
  MutexLock lock(&mu_);
  for (int i = 0; i < count; ++i) {
    std::vector<int32_t>& row = call_.tokens[static_cast<size_t>(tokens[i].row)];
    if (tokens[i].index != std::ssize(row)) call_.out_of_order = true;
    if (!call_.ends.empty()) ++call_.after_end;
    row.push_back(tokens[i].token);
  }
}

void HistorySink::OnDone(const absl::Status& status, Reply reply, const RequestTrace& trace) {
  MutexLock lock(&mu_);
  call_.ends.push_back({status, clock_->Now()});
  done_.SignalAll();
}

void HistorySink::Refuse(const absl::Status& status) {
  MutexLock lock(&mu_);
  call_.refused = status;
  call_.refused_at = clock_->Now();
}

void HistorySink::NoteCancel() {
  MutexLock lock(&mu_);
  call_.cancelled = true;
}

void HistorySink::AwaitDone() const {
  MutexLock lock(&mu_);
  while (call_.refused.ok() && call_.ends.empty()) done_.Wait(&mu_);
}

RecordedCall HistorySink::call() const {
  MutexLock lock(&mu_);
  return call_;
}

}  // namespace sluice
