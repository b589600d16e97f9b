// What a step batch costs, learned from the steps that ran.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/btree_map.h"
#include "engine/bucket.h"

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
  static constexpr int kTerms = 6;

  // Allocates only for a bucket seen for the first time. `seconds` <= 0 or not finite is ignored.
  void Observe(const StepShape& step, double seconds);

  // At most 10^5. 0 when nothing ran. Monotone in each field but the bucket's sequences, for a given bucket.
  double Estimate(const StepShape& step) const;

  // Time to compute `tokens` in full batches of `largest` and one of the rest, whose tokens are as
  // those of the steps observed were on average in context, positions and sampled rows. At most 10^9.
  double EstimateDrain(int64_t tokens, const Bucket& largest) const;

  // For export and the ladder file. Decayed sums, so that a model set from it learns on alike.
  struct BucketCost {
    Bucket bucket{};
    double correction = 1;
    double weight = 0;        // of the observations that it rests on
    double mean_seconds = 0;  // decayed, of its steps whatever their shape
  };
  struct State {
    double law[kTerms] = {};              // in the order of the formula, seconds per unit
    double moments[kTerms][kTerms] = {};  // decayed sum of x x' / y^2
    double products[kTerms] = {};         // decayed sum of x / y
    double totals[kTerms] = {};           // decayed sum of x
    std::vector<BucketCost> buckets;      // ascending
  };
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
