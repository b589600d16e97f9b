// The cost of a step batch, learned from the steps that ran.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "engine/bucket.h"
#include "engine/schedule_values.h"

namespace sluice {

// The properties of a step that its cost may depend on.
struct StepShape {
  Bucket bucket{};
  int32_t computed_tokens = 0;
  int64_t context_tokens = 0;      // positions attended to, summed over the computed tokens
  int32_t distinct_positions = 0;  // position-wise layers read one matrix per position
  int32_t sampled_rows = 0;
  int32_t distinct_adapters = 0;  // whose matrices each layer reads
};

// Predicts the seconds that a step takes. All buckets share one linear law of the step's shape,
//   a + b * bucket rows + c * computed + d * context + e * matrices + f * sampled + g * adapters,
// with non-negative coefficients, fitted by decayed least squares of the relative error. Bucket
// rows are the rows that the device computes because of the bucket (ComputedRows::OfBucketLayers):
// 0 on a device that computes only the rows of the batch, so there the law does not depend on the
// bucket. Matrices are the distinct matrices that a layer with several of them reads: the distinct
// positions or, in a model with experts, the experts that the computed tokens are expected to use.
// Adapters are the distinct low-rank adapters of the batch, whose matrices are read as well.
// The law is multiplied by a decayed correction per bucket, the median-like ratio of measured to
// predicted time. A single outlier moves neither much. The warm-up initialises the model by timing
// buckets. A bucket that never ran uses only the law. Not thread-safe; a copy is a snapshot.
class CostModel {
 public:
  static constexpr int kTerms = kCostTerms;

  CostModel() : CostModel(ComputedRows::OfBucket()) {}
  explicit CostModel(ComputedRows rows, const ExpertCounts& experts = {})
      : rows_(std::move(rows)), experts_(experts) {}

  // The rows that the device computes.
  const ComputedRows& rows() const { return rows_; }

  // Learns from a step. Ignores `seconds` unless they are positive and finite. Allocates only for
  // the first step of a bucket.
  void Observe(const StepShape& step, double seconds);

  // Returns the predicted seconds, at most 10^5; 0 if no step ran. Monotone in each field except
  // the bucket's sequences, for a given bucket.
  double Estimate(const StepShape& step) const;

  // Returns the number of distinct adapters of a step with this number of sampled rows, as in the
  // average observed step.
  int32_t AdaptersOf(int32_t sampled_rows) const;

  // Returns the seconds to compute `tokens` in full batches of `largest` and one batch for the
  // rest. Context, positions and sampled rows per token are the averages of the observed tokens. At
  // most 10^9.
  double EstimateDrain(int64_t tokens, const Bucket& largest) const;

  // For export and the ladder file. A restored model continues to learn like the original.
  using BucketCost = sluice::BucketCost;
  using State = CostState;
  State state() const;
  // Restores an external state. Drops numbers that are not finite, negative or implausibly large.
  void Restore(const State& state);

 private:
  // The values that the coefficients of the law multiply.
  using Terms = std::array<double, kTerms>;
  Terms TermsOf(const StepShape& step) const;
  double Law(const Terms& terms) const;
  void Fit();

  ComputedRows rows_;
  ExpertCounts experts_;
  Terms law_{};
  std::array<Terms, kTerms> moments_{};
  Terms products_{};
  Terms totals_{};
  absl::btree_map<Bucket, BucketCost> buckets_;
};

}  // namespace sluice
