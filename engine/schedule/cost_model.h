// What a step batch costs, learned from the steps that ran.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/btree_map.h"
#include "engine/bucket.h"
#include "engine/schedule_values.h"

namespace sluice {

// What a step's cost may depend on.
struct StepShape {
  Bucket bucket{};
  int32_t computed_tokens = 0;
  int64_t context_tokens = 0;      // sum over the computed tokens of the positions each attends to
  int32_t distinct_positions = 0;  // each reads its own weights in position-wise layers
  int32_t sampled_rows = 0;
};

// Seconds of a step: a non-negative linear law of the shape that all buckets share,
//   a + b * bucket.tokens + c * computed + d * context + e * positions + f * sampled,
// fitted by decayed least squares of the relative error, times a decayed correction per bucket, the
// median-like ratio of what its steps took to what the law says. One step that took far longer or
// shorter than the others moves neither much. Seeded by the warm-up, which times every bucket. Buckets
// that never ran have the law alone. Not thread-safe; a copy is a snapshot.
class CostModel {
 public:
  static constexpr int kTerms = kCostTerms;

  // Allocates only for a bucket seen for the first time. `seconds` <= 0 or not finite is ignored.
  void Observe(const StepShape& step, double seconds);

  // At most 10^5. 0 when nothing ran. Monotone in each field but the bucket's sequences, for a given bucket.
  double Estimate(const StepShape& step) const;

  // Time to compute `tokens` in full batches of `largest` and one of the rest, whose tokens are as
  // those of the steps observed were on average in context, positions and sampled rows. At most 10^9.
  double EstimateDrain(int64_t tokens, const Bucket& largest) const;

  // For export and the ladder file. A model that is restored from a state learns on alike.
  using BucketCost = sluice::BucketCost;
  using State = CostState;
  State state() const;
  // What is not finite, negative or beyond any measurement is dropped.
  void Restore(const State& state);

 private:
  // The values that the law's coefficients multiply.
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
