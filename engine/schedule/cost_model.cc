#include "engine/schedule/cost_model.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

// The factor for a step's weight at each later step. The law depends on about the last thousand
// steps.
constexpr double kLawDecay = 1 - 1.0 / 1024;
// The same for the correction and the mean of a bucket, which depend on about its last sixteen
// steps.
constexpr double kBucketWeight = 16;
// A step's time is clipped to this ratio of its estimate before the law learns from it. An outlier
// then does not move the law, but a lasting change does within a few steps.
constexpr double kLawClip = 2;
constexpr double kCorrectionClip = 1.25;
constexpr int kSweeps = 8;

enum Term { kStep, kBucketRows, kComputed, kContext, kMatrices, kSampled, kAdapters };

// Limits beyond any step. They keep a state that was restored from a malicious file in range.
constexpr double kMinSeconds = 1e-9;
constexpr double kMaxSeconds = 1e5;
constexpr double kMaxDrainSeconds = 1e9;
constexpr double kMaxMoment = 1e45;
constexpr double kMaxCorrection = 1e3;
constexpr double kMaxContext = 1 << 20;  // per token

bool Positive(double value) { return std::isfinite(value) && value > 0; }

double Within0And(double limit, double value) {
  return Positive(value) && value <= limit ? value : 0;
}

}  // namespace

CostModel::Terms CostModel::TermsOf(const StepShape& step) const {
  return {1.0,
          rows_.OfBucketLayers(step.bucket.tokens),
          static_cast<double>(step.computed_tokens),
          static_cast<double>(step.context_tokens),
          experts_.experts > 0 ? ExpectedExperts(experts_, step.computed_tokens)
                               : static_cast<double>(step.distinct_positions),
          static_cast<double>(step.sampled_rows),
          static_cast<double>(step.distinct_adapters)};
}

double CostModel::Law(const Terms& terms) const {
  double seconds = 0;
  for (int i = 0; i < kTerms; ++i) seconds += law_[i] * terms[i];
  return seconds;
}

void CostModel::Observe(const StepShape& step, double seconds) {
  if (!Positive(seconds)) return;
  const Terms terms = TermsOf(step);
  const double before = Law(terms);
  double lesson = std::max(seconds, kMinSeconds);
  if (before >= kMinSeconds) lesson = std::clamp(lesson, before / kLawClip, before * kLawClip);

  for (int i = 0; i < kTerms; ++i) {
    for (int j = 0; j < kTerms; ++j) {
      moments_[i][j] = moments_[i][j] * kLawDecay + terms[i] / lesson * (terms[j] / lesson);
    }
    products_[i] = products_[i] * kLawDecay + terms[i] / lesson;
    totals_[i] = totals_[i] * kLawDecay + terms[i];
  }
  Fit();

  const auto [it, first] = buckets_.try_emplace(step.bucket, BucketCost{.bucket = step.bucket});
  BucketCost& cost = it->second;
  // The law counts as one step, so that a bucket's first step does not decide by itself.
  const double share = 1 / (2 + cost.weight);
  const double law = Law(terms);
  if (law > 0) {
    const double ratio = seconds / (law * cost.correction);
    cost.correction *= std::pow(std::clamp(ratio, 1 / kCorrectionClip, kCorrectionClip), share);
    cost.correction = std::clamp(cost.correction, 1 / kMaxCorrection, kMaxCorrection);
  }
  cost.mean_seconds += (seconds - cost.mean_seconds) / (1 + cost.weight);
  cost.weight = std::min(cost.weight + 1, kBucketWeight - 1);
}

// Minimises the sum of (1 - law.x / y)^2 over law >= 0 by coordinate descent from the last
// solution. Coefficients that the data do not determine, because terms are collinear, do not
// change.
void CostModel::Fit() {
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (int i = 0; i < kTerms; ++i) {
      if (!(moments_[i][i] > 0)) continue;
      double rest = products_[i];
      for (int j = 0; j < kTerms; ++j) {
        if (j != i) rest -= moments_[i][j] * law_[j];
      }
      law_[i] = std::clamp(rest / moments_[i][i], 0.0, kMaxSeconds);
    }
  }
}

double CostModel::Estimate(const StepShape& step) const {
  const auto it = buckets_.find(step.bucket);
  const double correction = it == buckets_.end() ? 1 : it->second.correction;
  return std::min(Law(TermsOf(step)) * correction, kMaxSeconds);
}

int32_t CostModel::AdaptersOf(int32_t sampled_rows) const {
  if (!(totals_[kSampled] > 0)) return 0;
  const double adapters = totals_[kAdapters] / totals_[kSampled] * sampled_rows;
  return static_cast<int32_t>(std::min<double>(adapters, sampled_rows));
}

double CostModel::EstimateDrain(int64_t tokens, const Bucket& largest) const {
  const auto batch = [&](int32_t computed) {
    const double part = totals_[kComputed] > 0 ? computed / totals_[kComputed] : 0;
    // A restored total may be any number. No result may exceed the maximum for such a batch.
    const auto share = [&](Term term, double most) {
      const double value = totals_[term] * part;
      return value < most ? value : most;
    };
    return Estimate({.bucket = largest,
                     .computed_tokens = computed,
                     .context_tokens = std::llround(share(kContext, kMaxContext * computed)),
                     .distinct_positions = static_cast<int32_t>(share(kMatrices, computed)),
                     .sampled_rows = static_cast<int32_t>(share(kSampled, computed)),
                     .distinct_adapters = static_cast<int32_t>(share(kAdapters, computed))});
  };
  const int64_t full = tokens / largest.tokens;
  const int32_t rest = tokens % largest.tokens;
  const double seconds =
      static_cast<double>(full) * batch(largest.tokens) + (rest > 0 ? batch(rest) : 0);
  return std::min(seconds, kMaxDrainSeconds);
}

CostState CostModel::state() const {
  State state;
  state.rows = rows_;
  state.experts = experts_;
  for (int i = 0; i < kTerms; ++i) {
    state.law[i] = law_[i];
    state.products[i] = products_[i];
    state.totals[i] = totals_[i];
    for (int j = 0; j < kTerms; ++j) state.moments[i][j] = moments_[i][j];
  }
  for (const auto& [bucket, cost] : buckets_) state.buckets.push_back(cost);
  return state;
}

void CostModel::Restore(const State& state) {
  rows_ = state.rows;
  experts_ = state.experts;
  for (int i = 0; i < kTerms; ++i) {
    law_[i] = Within0And(kMaxSeconds, state.law[i]);
    products_[i] = Within0And(kMaxMoment, state.products[i]);
    totals_[i] = Within0And(kMaxMoment, state.totals[i]);
    for (int j = 0; j < kTerms; ++j) moments_[i][j] = Within0And(kMaxMoment, state.moments[i][j]);
  }
  buckets_.clear();
  for (const BucketCost& cost : state.buckets) {
    const bool plausible =
        cost.correction <= kMaxCorrection && cost.correction >= 1 / kMaxCorrection;
    if (!plausible || !Positive(cost.weight)) continue;
    buckets_[cost.bucket] = {.bucket = cost.bucket,
                             .correction = cost.correction,
                             .weight = std::min(cost.weight, kBucketWeight - 1),
                             .mean_seconds = Within0And(kMaxSeconds, cost.mean_seconds)};
  }
}

}  // namespace sluice
