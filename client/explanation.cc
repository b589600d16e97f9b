#include "client/explanation.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/enum_names.h"
#include "client/buckets_view.h"
#include "client/table.h"
#include "engine/engine_stats.h"
#include "engine/schedule/batch_former.h"

namespace sluice::client {
namespace {

using admin::v1::ExplainResponse;

constexpr size_t kIndent = 14;  // of the text after a line's time

std::string Milliseconds(double seconds) { return absl::StrFormat("%.3f ms", 1000 * seconds); }

constexpr auto kTriggerMeanings = [] {
  using enum Trigger;
  return EnumNameTable<Trigger>(
      {{kFull, "a larger step would not be faster, or does not fit the largest bucket"},
       {kDelay, "a sequence had waited for max_queue_delay"},
       {kDeadline, "a sequence would have missed its deadline by waiting longer"},
       {kIdle, "waiting would have gained nothing"},
       {kDrain, "the daemon was shutting down"}});
}();

constexpr auto kLookupMeanings = [] {
  using enum Lookup;
  return EnumNameTable<Lookup>(
      {{kHit, "its plan was ready"},
       {kMissNotPrepared, "the ladder's own choice was still being prepared"},
       {kMissEvicted, "the ladder's own choice had been evicted"},
       {kMissOverCapacity, "the batch was larger than every bucket"},
       {kMissGuard, "an operator's constraint did not hold for the prepared plan"},
       {kMissMemory,
        "the device had no memory to prepare it, so its steps were launched op by op"}});
}();

constexpr auto kWaitMeanings = [] {
  using enum WaitReason;
  return EnumNameTable<WaitReason>(
      {{kEmpty, "nothing could run"},
       {kMoreRequests, "requests expected soon save more device time than the delay costs"}});
}();

// Returns the meaning of an enumerator's name, or the name itself if this client has no text for
// it.
template <typename E, size_t n>
std::string Meaning(const std::array<EnumName<E>, n>& meanings, const std::string& name) {
  const std::optional<E> known = EnumOf<E>(name);
  if (!known.has_value()) return absl::Utf8SafeCHexEscape(name);
  return std::string(meanings[static_cast<size_t>(*known)].name);
}

std::string WaitText(const ExplainResponse::Wait& wait) {
  std::string text = absl::StrCat("waits: ", Meaning(kWaitMeanings, wait.reason()));
  if (wait.until_seconds() >= 0) {
    absl::StrAppend(&text, ", until ", Milliseconds(wait.until_seconds()), " at the latest");
  }
  absl::StrAppendFormat(&text, "; a batch would have held %s of %s",
                        Counted(wait.waiting_tokens(), "token", "tokens"),
                        Counted(wait.waiting_rows(), "row", "rows"));
  return text;
}

// Returns "; with request a, b and 3 others", or "" for a batch of one request.
std::string CoBatchedText(const ExplainResponse::Step& step) {
  if (step.other_requests() == 0) return "";
  const int64_t more = step.other_requests() - step.shared_with_size();
  if (step.shared_with().empty()) return absl::StrCat("; with ", Counted(more, "other", "others"));
  std::string text = step.shared_with_size() == 1 ? "; with request " : "; with requests ";
  for (const std::string& name : step.shared_with()) {
    absl::StrAppend(&text, &name == &step.shared_with(0) ? "" : ", ",
                    absl::Utf8SafeCHexEscape(name));
  }
  if (more > 0) absl::StrAppend(&text, " and ", Counted(more, "other", "others"));
  return text;
}

std::string StepText(const ExplainResponse::Step& step) {
  const int64_t capacity = std::max(step.bucket().tokens(), 1);
  const std::string which =
      step.steps() <= 1
          ? absl::StrCat("runs in step ", step.step(), " for ", Milliseconds(step.replay_seconds()))
          : absl::StrFormat("runs in %d steps, %d to %d, for %.3f to %s each", step.steps(),
                            step.step(), step.last_step(), 1000 * step.replay_seconds(),
                            Milliseconds(step.longest_replay_seconds()));
  return absl::StrFormat(
      "%s: %s of its own, %d in total in %s, in bucket %s (%.1f%% used)%s; launched because %s; %s",
      which, Counted(step.own_tokens(), "token", "tokens"), step.batch_tokens(),
      Counted(step.batch_rows(), "row", "rows"), BucketName(step.bucket()),
      100.0 * static_cast<double>(step.batch_tokens()) / static_cast<double>(capacity),
      CoBatchedText(step), Meaning(kTriggerMeanings, step.trigger()),
      Meaning(kLookupMeanings, step.lookup()));
}

}  // namespace

std::string ExplanationText(const std::string& request_id, const ExplainResponse& response) {
  const std::string outcome = absl::StrFormat(
      "Request %s to %s version %s ended with %s after %s, including %s of waiting to run.",
      absl::Utf8SafeCHexEscape(request_id), absl::Utf8SafeCHexEscape(response.model_name()),
      absl::Utf8SafeCHexEscape(response.model_version()),
      absl::Utf8SafeCHexEscape(response.status()), Milliseconds(response.total_seconds()),
      Milliseconds(response.queue_seconds()));
  std::string text = Labelled("", 0, outcome);
  std::vector<std::pair<double, std::string>> events;
  for (const auto& wait : response.waits()) events.emplace_back(wait.at_seconds(), WaitText(wait));
  int64_t told = 0;
  for (const auto& step : response.steps()) {
    events.emplace_back(step.start_seconds(), StepText(step));
    told += std::max<int64_t>(step.steps(), 1);
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [at, what] : events) {
    absl::StrAppend(&text, Labelled(absl::StrFormat("%12s", Milliseconds(at)), kIndent, what));
  }
  if (response.steps().empty()) absl::StrAppend(&text, "It never ran.\n");
  const int64_t more = response.total_steps() - told;
  if (more > 0) absl::StrAppend(&text, "and ", Counted(more, "more step", "more steps"), ".\n");
  if (response.drafted_tokens() > 0) {
    absl::StrAppend(&text, "Its steps checked ",
                    Counted(response.drafted_tokens(), "drafted token", "drafted tokens"),
                    response.draft_source().empty() ? "" : " of the source ",
                    absl::Utf8SafeCHexEscape(response.draft_source()), "; ",
                    response.accepted_tokens(), " were accepted.\n");
  }
  return text;
}

}  // namespace sluice::client
