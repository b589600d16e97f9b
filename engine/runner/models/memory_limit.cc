#include "engine/runner/models/memory_limit.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/review/ladder_benchmark.h"

namespace sluice {
namespace {

// Returns the seconds of a step that computes all tokens of `step` in `bucket`.
double Seconds(const CostModel& law, const Bucket& bucket, const Bucket& step) {
  return law.Estimate(
      {.bucket = bucket, .computed_tokens = bucket.padded() ? bucket.tokens : step.tokens});
}

std::string Name(const Bucket& bucket) {
  return bucket.padded() ? absl::StrCat(bucket.sequences, " rows of ", bucket.positions, " tokens")
                         : absl::StrCat(bucket.tokens, " tokens");
}

std::string Limit(int64_t bytes) {
  return absl::StrCat("engine.ladder.memory_limit_bytes of ", bytes, " bytes");
}

}  // namespace

std::string LoweredMaximumText(int64_t limit_bytes, const Bucket& wanted, int64_t wanted_bytes,
                               const Bucket& largest, const CostModel& costs) {
  std::string text =
      absl::StrCat("At start, ", Limit(limit_bytes), " lowered the largest bucket from ",
                   Name(wanted), " to ", Name(largest), ": the activations of ", wanted.tokens,
                   " tokens take ", wanted_bytes, " bytes.");
  const CostModel law = LawOf(costs);
  const double before = Seconds(law, wanted, wanted) / wanted.tokens;
  const double after = Seconds(law, largest, largest) / largest.tokens;
  if (before <= 0) return text;
  absl::StrAppendFormat(&text,
                        " By the measured costs, a token in full batches takes %.1f%% more device "
                        "time.",
                        100 * std::max(after / before - 1, 0.0));
  return text;
}

std::string LeftOutText(int64_t limit_bytes, std::span<const Bucket> left_out, const Ladder& kept,
                        const CostModel& costs) {
  std::string text = absl::StrCat("At start, ", Limit(limit_bytes), " left out ", left_out.size(),
                                  " of ", left_out.size() + kept.buckets().size(), " buckets.");
  const CostModel law = LawOf(costs);
  const Bucket* step = nullptr;
  const Bucket* serves = nullptr;
  double most = 0;
  for (const Bucket& bucket : left_out) {
    const Bucket* const instead = kept.Choose(
        {.tokens = bucket.tokens, .sequences = bucket.sequences, .longest = bucket.positions});
    const double own = Seconds(law, bucket, bucket);
    if (instead == nullptr || own <= 0) continue;
    const double more = Seconds(law, *instead, bucket) / own - 1;
    if (step != nullptr && more <= most) continue;
    most = more;
    step = &bucket;
    serves = instead;
  }
  if (step == nullptr) return text;
  absl::StrAppendFormat(&text,
                        " By the measured costs, a step of %s takes %.1f%% more device time in the "
                        "bucket of %s.",
                        Name(*step), 100 * std::max(most, 0.0), Name(*serves));
  return text;
}

std::string UnmetLimitText(int64_t limit_bytes, const Bucket& largest, int64_t needed_bytes) {
  if (limit_bytes == 0 || needed_bytes <= limit_bytes) return "";
  return absl::StrCat(Limit(limit_bytes), " cannot be met: the plan and the activations of the ",
                      "largest bucket of ", Name(largest), " take ", needed_bytes,
                      " bytes. Raise the limit, or lower engine.batch.max_batch_tokens.");
}

std::string JoinedSentences(const std::string& first, const std::string& second) {
  return absl::StrCat(first, first.empty() || second.empty() ? "" : " ", second);
}

}  // namespace sluice
