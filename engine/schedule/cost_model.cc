#include "engine/schedule/cost_model.h"

#include <iterator>

namespace sluice {
namespace {

constexpr double kWeightOfNewest = 1.0 / 8;

}  // namespace

void CostModel::Observe(const StepShape& step, double seconds) {
  const auto [it, first] = seconds_.try_emplace(step.bucket, seconds);
  if (!first) it->second += (seconds - it->second) * kWeightOfNewest;
}

double CostModel::Estimate(const StepShape& step) const {
  if (seconds_.empty()) return 0;
  const auto it = seconds_.lower_bound(step.bucket);
  return it == seconds_.end() ? std::prev(it)->second : it->second;
}

double CostModel::EstimateDrain(int64_t tokens, const Bucket& largest) const {
  const int64_t full = tokens / largest.tokens;
  const auto rest = static_cast<int32_t>(tokens % largest.tokens);
  double seconds = static_cast<double>(full) * Estimate({.bucket = largest});
  if (rest > 0) seconds += Estimate({.bucket = {.tokens = rest}, .computed_tokens = rest});
  return seconds;
}

}  // namespace sluice
