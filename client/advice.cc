#include "client/advice.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/text_wrap.h"
#include "client/buckets_view.h"
#include "client/table.h"
#include "engine/options.h"

namespace sluice::client {
namespace {

using admin::v1::BucketUse;
using admin::v1::ModelBuckets;

// A count of batches below this is too small for the use of single buckets to mean anything.
constexpr int64_t kBatchesForUse = 1000;

constexpr double kLowHitRate = 0.95;
constexpr double kLowPaddingEfficiency = 0.85;
constexpr double kLowExecutedEfficiency = 0.9;
constexpr double kManySizesPerBucket = 4;
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
  if (!Padded(model) || model.executed_efficiency() >= kLowExecutedEfficiency) return std::nullopt;
  return Advice{
      absl::StrCat("The padded layout of ", model.policy(), " spends ",
                   Percent(1 - model.executed_efficiency()), " of its computation on padding."),
      "Pack tokens instead: engine.batch.policy: cut_and_fill."};
}

std::optional<Advice> AdviseOnMemory(const ModelBuckets& model) {
  const double limit = static_cast<double>(model.memory_limit_bytes());
  const double used = static_cast<double>(model.ladder_memory_bytes());
  if (limit == 0 || used < kNearMemoryLimit * limit) return std::nullopt;
  return Advice{
      absl::StrFormat("Plans and activations take %.1f MiB %s the limit of %.1f MiB; %d buckets "
                      "were evicted for it.",
                      Mebibytes(model.ladder_memory_bytes()), used > limit ? "and exceed" : "near",
                      Mebibytes(model.memory_limit_bytes()), model.ladder_changes().evicted()),
      "Raise engine.ladder.memory_limit_bytes, or lower engine.ladder.max_buckets so that the "
      "buckets that stay are chosen for it."};
}

std::optional<Advice> AdviseOnHits(const ModelBuckets& model) {
  if (model.hit_rate() >= kLowHitRate) return std::nullopt;
  return Advice{
      absl::StrCat("Low hit rate: only ", Percent(model.hit_rate()),
                   " of the batches ran in the bucket that the ladder chose for them."),
      "Plans are prepared too late or were evicted; sluice_plan_lookups_total tells the reasons. "
      "Keep the ladder between runs (engine.ladder.file), review it less often "
      "(engine.ladder.review.interval_us), or allow it more memory."};
}

std::optional<Advice> AdviseOnEfficiency(const ModelBuckets& model) {
  if (Padded(model) || model.padding_efficiency() >= kLowPaddingEfficiency) return std::nullopt;
  return Advice{absl::StrCat("Low efficiency: ", Percent(1 - model.padding_efficiency()),
                             " of the bucket tokens were not used."),
                EnumOf<StrategyKind>(model.strategy()) == StrategyKind::kAdaptive
                    ? "Fit the ladder to the traffic now: sluice optimize --force. If that changes "
                      "nothing, allow more buckets: engine.ladder.max_buckets."
                    : "Let the ladder follow the traffic: engine.ladder.strategy: adaptive."};
}

std::optional<Advice> AdviseOnEntropy(const ModelBuckets& model) {
  const double sizes = std::exp2(model.shape_entropy_bits());
  const int buckets = LadderSize(model);
  if (Padded(model) || buckets == 0 || sizes < kManySizesPerBucket * buckets) return std::nullopt;
  if (model.padding_efficiency() >= (1 + kLowPaddingEfficiency) / 2) return std::nullopt;
  return Advice{
      absl::StrFormat("High shape entropy: batch sizes vary as if %.0f of them were equally likely "
                      "(%.1f bits), for %d buckets.",
                      sizes, model.shape_entropy_bits(), buckets),
      "Allow more buckets (engine.ladder.max_buckets), or let requests wait for company "
      "(engine.batch.max_queue_delay_us), which makes batches fuller and more alike."};
}

std::optional<Advice> AdviseOnUnused(const ModelBuckets& model) {
  if (model.batches() < kBatchesForUse || LadderSize(model) < 2) return std::nullopt;
  std::vector<std::string> unused;
  int64_t bytes = 0;
  // The last bucket is the exact maximum, which every ladder needs.
  for (int i = 0; i + 1 < model.buckets_size(); ++i) {
    const BucketUse& use = model.buckets(i);
    if (!use.in_ladder() || use.batches() > 0) continue;
    unused.push_back(BucketName(use.bucket()));
    bytes += use.memory_bytes();
  }
  if (unused.empty()) return std::nullopt;
  const char* action =
      Padded(model) ? "The padded ladder is fixed; a packed policy keeps only what it needs: "
                      "engine.batch.policy: cut_and_fill."
                    : "Drop what is rarely used: engine.ladder.min_bucket_usage: 0.001.";
  return Advice{absl::StrFormat("Unused: %s held %.1f MiB and served no batch.",
                                absl::StrJoin(unused, ", "), Mebibytes(bytes)),
                action};
}

}  // namespace

std::vector<Advice> Advise(const ModelBuckets& model) {
  if (model.batches() < kBatchesToJudgeBy) {
    return {{absl::StrFormat("Only %d batches were seen, too few to judge by.", model.batches()),
             absl::StrFormat("Ask again after %d.", kBatchesToJudgeBy)}};
  }
  std::vector<Advice> advice;
  for (const auto& rule : {AdviseOnPaddedLayout, AdviseOnMemory, AdviseOnHits, AdviseOnEfficiency,
                           AdviseOnEntropy, AdviseOnUnused}) {
    if (std::optional<Advice> found = rule(model)) advice.push_back(*std::move(found));
  }
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
