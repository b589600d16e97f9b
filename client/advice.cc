#include "client/advice.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/text_wrap.h"
#include "client/buckets_view.h"
#include "client/table.h"
#include "client/trials.h"
#include "engine/review/ladder_benchmark.h"

namespace sluice::client {
namespace {

using admin::v1::BucketUse;
using admin::v1::ModelBuckets;

// With fewer batches, the use of single buckets is too noisy for advice.
constexpr int64_t kBatchesForUse = 1000;

constexpr double kLowHitRate = 0.95;
constexpr double kLowBucketFill = 0.85;
constexpr double kLowExecutedEfficiency = 0.9;
constexpr double kNothingLost = 0.995;
constexpr int64_t kWorthFreeing = 1 << 20;  // bytes
constexpr double kNearMemoryLimit = 0.9;
constexpr size_t kWidth = 96;

bool Padded(const ModelBuckets& model) {
  return std::any_of(model.buckets().begin(), model.buckets().end(),
                     [](const BucketUse& use) { return use.bucket().positions() > 0; });
}

int LadderSize(const ModelBuckets& model) {
  return std::count_if(model.buckets().begin(), model.buckets().end(),
                       [](const BucketUse& use) { return use.in_ladder(); });
}

std::optional<Advice> AdviseOnPaddedLayout(const ModelBuckets& model) {
  if (!Padded(model) || model.last_hour().executed_efficiency() >= kLowExecutedEfficiency)
    return std::nullopt;
  return Advice{absl::StrCat("The padded layout of ", model.policy(), " spends ",
                             Percent(1 - model.last_hour().executed_efficiency()),
                             " of its computation on padding."),
                "Pack tokens instead: engine.batch.policy: packed."};
}

std::optional<Advice> AdviseOnMemory(const ModelBuckets& model) {
  const double limit = static_cast<double>(model.memory_limit_bytes());
  const double used = static_cast<double>(model.ladder_memory_bytes());
  if (limit == 0 || used < kNearMemoryLimit * limit) return std::nullopt;
  return Advice{
      absl::StrFormat("Plans and activations take %.1f MiB %s the limit of %.1f MiB; %d buckets "
                      "were evicted to stay within it.",
                      Mebibytes(model.ladder_memory_bytes()), used > limit ? "and exceed" : "near",
                      Mebibytes(model.memory_limit_bytes()), model.ladder_changes().evicted()),
      "Raise engine.ladder.memory_limit_bytes, or lower engine.ladder.max_buckets so that the "
      "ladder is fitted to fewer buckets."};
}

std::optional<Advice> AdviseOnHits(const ModelBuckets& model) {
  if (model.last_hour().hit_rate() >= kLowHitRate) return std::nullopt;
  return Advice{absl::StrCat("Low hit rate: only ", Percent(model.last_hour().hit_rate()),
                             " of the batches ran in the bucket that the ladder chose for them."),
                "Plans are prepared too late or were evicted; sluice_plan_lookups_total counts the "
                "reasons. Keep the ladder between runs (engine.ladder.file), review it less often "
                "(engine.ladder.review.interval), or allow it more memory."};
}

// Returns the tokens that at most half of the recent batches exceed, or 0 if none ran.
int64_t TypicalBatch(const ModelBuckets& model) {
  double total = 0, sum = 0;
  for (const admin::v1::SizeCount& size : model.batch_totals()) total += size.weight();
  for (const admin::v1::SizeCount& size : model.batch_totals()) {
    sum += size.weight();
    if (2 * sum >= total) return size.tokens();
  }
  return 0;
}

int64_t SmallestCapacity(const ModelBuckets& model) {
  for (const BucketUse& use : model.buckets()) {
    if (use.in_ladder()) return use.bucket().tokens();
  }
  return 0;
}

// Returns the cause of unused bucket tokens, and its cost, if the statistics show them;
// `better` is a ladder that gains, or nullptr.
std::string CauseOf(const ModelBuckets& model, const StrategyTrial* better) {
  std::string cause;
  const int64_t typical = TypicalBatch(model);
  const int64_t smallest = SmallestCapacity(model);
  if (typical > 0 && 2 * typical <= smallest) {
    absl::StrAppendFormat(
        &cause,
        " Half of the batches have at most %d tokens, and the smallest bucket has "
        "%d (engine.ladder.min_tokens).",
        typical, smallest);
  }
  if (model.ladder_changes().evicted() > 0) {
    absl::StrAppendFormat(
        &cause, " %d buckets were dropped to stay within engine.ladder.memory_limit_bytes.",
        model.ladder_changes().evicted());
  }
  if (better != nullptr && better->name == model.strategy()) {
    absl::StrAppendFormat(&cause, " The ladder follows the traffic too slowly: %d reviews so far.",
                          model.ladder_changes().reviews());
  }
  if (model.last_hour().executed_efficiency() >= kNothingLost) {
    absl::StrAppend(&cause, " No work is wasted (executed efficiency ",
                    Percent(model.last_hour().executed_efficiency()),
                    "): unused bucket capacity costs nothing on this device.");
  }
  return cause;
}

std::string ActionOn(const ModelBuckets& model, const StrategyTrials* trials,
                     const StrategyTrial* better) {
  if (trials != nullptr && trials->ladder_is_free) {
    return absl::StrCat("Leave the ladder as it is: ", kLadderIsFree, ".");
  }
  if (trials == nullptr) {
    return model.last_hour().executed_efficiency() >= kNothingLost
               ? "Leave the ladder as it is."
               : "Once 100 sequences have arrived, run sluice ladder try to find a better ladder.";
  }
  if (better == nullptr) {
    return absl::StrFormat(
        "Leave the ladder as it is: on the last %d arrivals no strategy gains more than %s, which "
        "may be chance, in a simulation with the measured costs.",
        trials->arrivals, Percent(trials->margin));
  }
  const std::string gain =
      absl::StrFormat("gains %s on the last %d arrivals, in a simulation with the measured costs",
                      Percent(better->gain), trials->arrivals);
  if (better->name == model.strategy()) {
    return absl::StrCat("A ladder fitted now ", gain,
                        ": sluice review --force. Also make reviews more frequent "
                        "(engine.ladder.review.interval) or shorten their half_life.");
  }
  return absl::StrCat("\"", better->name, "\" ", gain, ": sluice ladder set ", model.model_name(),
                      " ", ChoiceFlags(better->choice), ".");
}

std::optional<Advice> AdviseOnLadder(const ModelBuckets& model, const StrategyTrials* trials) {
  if (Padded(model) && trials == nullptr) return std::nullopt;
  const StrategyTrial* better = nullptr;
  if (trials != nullptr && trials->best != trials->trials.front().name) better = &BestOf(*trials);
  const bool low = model.last_hour().bucket_fill() < kLowBucketFill;
  if (!low && better == nullptr) return std::nullopt;
  return Advice{absl::StrCat(low ? "Low bucket fill: " : "The ladder could fit better: ",
                             Percent(1 - model.last_hour().bucket_fill()),
                             " of the bucket tokens were not used.", CauseOf(model, better)),
                ActionOn(model, trials, better)};
}

std::optional<Advice> AdviseOnUnused(const ModelBuckets& model) {
  if (model.batches() < kBatchesForUse || LadderSize(model) < 2) return std::nullopt;
  std::vector<std::string> unused;
  int64_t bytes = 0;
  // The last bucket has exactly the maximum size, which every ladder needs.
  for (int i = 0; i + 1 < model.buckets_size(); ++i) {
    const BucketUse& use = model.buckets(i);
    if (!use.in_ladder() || use.batches() > 0) continue;
    unused.push_back(BucketName(use.bucket()));
    bytes += use.memory_bytes();
  }
  if (bytes < kWorthFreeing) return std::nullopt;
  const char* action = Padded(model)
                           ? "Use a packed policy, which keeps only the buckets it needs: "
                             "engine.batch.policy: packed."
                           : "Drop rarely used buckets: engine.ladder.min_bucket_usage: 0.001.";
  return Advice{absl::StrFormat("Unused: %s held %.1f MiB and served no batch.",
                                absl::StrJoin(unused, ", "), Mebibytes(bytes)),
                action};
}

}  // namespace

std::vector<Advice> Advise(const ModelBuckets& model, const StrategyTrials* trials) {
  if (const int64_t batches = model.last_hour().batches(); batches < kBatchesToJudgeBy) {
    return {{absl::StrFormat("Only %d batches ran in the last hour, too few for advice.", batches),
             absl::StrFormat("Run this command again after %d batches.", kBatchesToJudgeBy)}};
  }
  std::vector<Advice> advice;
  const auto add = [&advice](std::optional<Advice> found) {
    if (found.has_value()) advice.push_back(*std::move(found));
  };
  add(AdviseOnPaddedLayout(model));
  add(AdviseOnMemory(model));
  add(AdviseOnHits(model));
  add(AdviseOnLadder(model, trials));
  add(AdviseOnUnused(model));
  return advice;
}

std::string AdviceText(const std::vector<Advice>& advice) {
  if (advice.empty()) return "Nothing to change: the buckets fit the traffic.\n";
  std::string text;
  for (const Advice& each : advice) {
    const std::vector<std::string> lines =
        Wrap(absl::StrCat(each.finding, " ", each.action), kWidth - 2);
    absl::StrAppend(&text, "- ", absl::StrJoin(lines, "\n  "), "\n");
  }
  return text;
}

}  // namespace sluice::client
