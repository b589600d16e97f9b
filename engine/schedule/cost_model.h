// The cost of a step batch, learned from the steps that ran.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/btree_map.h"
#include "engine/bucket.h"
#include "engine/schedule_values.h"

namespace sluice {

// The properties of a step that its cost may depend on.
struct StepShape {
  Bucket bucket{};
  int32_t computed_tokens = 0;
  int64_t context_tokens = 0;      // the positions that each computed token attends to, summed
  int32_t distinct_positions = 0;  // position-wise layers read one matrix for each
  int32_t sampled_rows = 0;
};

// Predicts the seconds that a step takes: a non-negative linear law of the shape that all buckets
// share,
//   a + b * bucket.tokens + c * computed + d * context + e * positions + f * sampled,
// fitted by decayed least squares of the relative error, times a decayed correction per bucket: the
// median-like ratio of measured to predicted time. A single outlier moves neither much. The warm-up
// seeds it by timing every bucket; buckets that never ran have the law alone. Not thread-safe; a
// copy is a snapshot.
class CostModel {
 public:
  static constexpr int kTerms = kCostTerms;

  // Learns from a step. Ignores `seconds` that are not positive and finite. Allocates only for a
  // bucket that is seen for the first time.
  void Observe(const StepShape& step, double seconds);

  // Returns the predicted seconds, at most 10^5; 0 if no step ran. Monotone in each field except
  // the bucket's sequences, for a given bucket.
  double Estimate(const StepShape& step) const;

  // Returns the seconds to compute `tokens` in full batches of `largest` and one batch of the rest.
  // Per token, context, positions and sampled rows are those of the average observed token. At most
  // 10^9.
  double EstimateDrain(int64_t tokens, const Bucket& largest) const;

  // For export and the ladder file. A restored model goes on learning like the original.
  using BucketCost = sluice::BucketCost;
  using State = CostState;
  State state() const;
  // Restores a state from outside. Drops numbers that are not finite, negative or beyond any
  // measurement.
  void Restore(const State& state);

 private:
  // The values that the coefficients of the law multiply.
  using Terms = std::array<double, kTerms>;
  static Terms TermsOf(const StepShape& step);
  double Law(const Terms& terms) const;
  void Fit();

  Terms law_{};
  std::array<Terms, kTerms> moments_{};
  Terms products_{};
  Terms totals_{};
  absl::btree_map<Bucket, BucketCost> buckets_;
};

}  // namespace sluice
