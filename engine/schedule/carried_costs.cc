#include "engine/schedule/carried_costs.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice {

CarriedCosts::CarriedCosts(const CostModel& costs) {
  CostState state = costs.state();
  buckets_ = std::exchange(state.buckets, {});
  law_.Restore(state);
  std::ranges::sort(buckets_, {}, &BucketCost::bucket);
}

double CarriedCosts::operator()(const StepShape& step) const {
  return law_.Estimate(step) * Correction(step);
}

double CarriedCosts::Correction(const StepShape& step) const {
  if (step.bucket.padded()) {
    const auto same = std::ranges::find(buckets_, step.bucket, &BucketCost::bucket);
    return same == buckets_.end() ? 1 : same->correction;
  }
  const int32_t tokens = law_.rows().batch_only() ? step.computed_tokens : step.bucket.tokens;
  const BucketCost *below = nullptr, *above = nullptr;
  for (const BucketCost& cost : buckets_) {
    if (cost.bucket.padded()) continue;
    if (cost.bucket.tokens >= tokens) {
      above = &cost;
      break;
    }
    below = &cost;
  }
  if (above == nullptr) return below == nullptr ? 1 : below->correction;
  if (law_.rows().batch_only() || below == nullptr || above->bucket.tokens == tokens) {
    return above->correction;
  }
  const double share = std::log(static_cast<double>(tokens) / below->bucket.tokens) /
                       std::log(static_cast<double>(above->bucket.tokens) / below->bucket.tokens);
  return below->correction * std::pow(above->correction / below->correction, share);
}

}  // namespace sluice
