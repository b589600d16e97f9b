#include "client/explanation.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/buckets_view.h"

namespace sluice::client {
namespace {

using admin::v1::ExplainResponse;

std::string Milliseconds(double seconds) { return absl::StrFormat("%.3f ms", 1000 * seconds); }

// What a word of the protocol means; the word itself where it is not known.
std::string Meaning(const std::map<std::string, std::string>& meanings, const std::string& word) {
  const auto found = meanings.find(word);
  return found == meanings.end() ? absl::Utf8SafeCHexEscape(word) : found->second;
}

std::string TriggerText(const std::string& trigger) {
  static const auto& meanings = *new std::map<std::string, std::string>{
      {"full", "nothing more fitted the largest bucket"},
      {"delay", "a sequence had waited for max_queue_delay"},
      {"deadline", "a sequence would have missed its deadline by waiting on"},
      {"idle", "nothing was to be gained by waiting"},
      {"drain", "the daemon was shutting down"}};
  return Meaning(meanings, trigger);
}

std::string LookupText(const std::string& lookup) {
  static const auto& meanings = *new std::map<std::string, std::string>{
      {"hit", "its plan was ready"},
      {"not_captured", "the ladder's own choice was still being prepared"},
      {"evicted", "the ladder's own choice had been evicted"},
      {"over_capacity", "the batch was larger than every bucket"},
      {"memory", "the device had no memory to prepare it, and its steps were launched op by op"},
      {"guard", "a constraint of an operator ruled the ladder's own choice out"}};
  return Meaning(meanings, lookup);
}

std::string WaitText(const ExplainResponse::Wait& wait) {
  std::string text = "waits: ";
  if (wait.reason() == "company") {
    absl::StrAppend(&text, "those expected soon save more device time than the delay costs");
  } else {
    absl::StrAppend(&text, Meaning({{"empty", "nothing could run"}}, wait.reason()));
  }
  if (wait.until_seconds() >= 0) {
    absl::StrAppend(&text, ", until ", Milliseconds(wait.until_seconds()), " at the latest");
  }
  absl::StrAppendFormat(&text, "; a batch would have held %d tokens of %d rows",
                        wait.waiting_tokens(), wait.waiting_rows());
  return text;
}

std::string StepText(const ExplainResponse::Step& step) {
  const int64_t capacity = std::max(step.bucket().tokens(), 1);
  return absl::StrFormat(
      "runs in step %d for %s: %d tokens of its own, %d in all of %d rows, in bucket %s (%.1f%% "
      "used); launched because %s; %s",
      step.step(), Milliseconds(step.replay_seconds()), step.own_tokens(), step.batch_tokens(),
      step.batch_rows(), BucketName(step.bucket()),
      100.0 * static_cast<double>(step.batch_tokens()) / static_cast<double>(capacity),
      TriggerText(step.trigger()), LookupText(step.lookup()));
}

}  // namespace

std::string ExplanationText(const std::string& request_id, const ExplainResponse& response) {
  std::string text = absl::StrFormat(
      "Request %s to %s version %s ended with %s after %s, of which it waited %s to run.\n",
      absl::Utf8SafeCHexEscape(request_id), absl::Utf8SafeCHexEscape(response.model_name()),
      absl::Utf8SafeCHexEscape(response.model_version()),
      absl::Utf8SafeCHexEscape(response.status()), Milliseconds(response.total_seconds()),
      Milliseconds(response.queue_seconds()));
  std::vector<std::pair<double, std::string>> events;
  for (const auto& wait : response.waits()) events.emplace_back(wait.at_seconds(), WaitText(wait));
  for (const auto& step : response.steps()) {
    events.emplace_back(step.start_seconds(), StepText(step));
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [at, what] : events) {
    absl::StrAppendFormat(&text, "%12s  %s\n", Milliseconds(at), what);
  }
  if (response.steps().empty()) absl::StrAppend(&text, "It never ran.\n");
  const int64_t more = response.total_steps() - response.steps_size();
  if (more > 0) absl::StrAppendFormat(&text, "and %d more steps.\n", more);
  return text;
}

}  // namespace sluice::client
