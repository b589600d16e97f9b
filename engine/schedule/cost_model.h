// What a step batch costs, learned from the steps that ran.
#pragma once

#include <cstdint>

#include "absl/container/btree_map.h"
#include "engine/backend.h"

namespace sluice {

// What a step's cost may depend on.
struct StepShape {
  Bucket bucket{};
  int32_t computed_tokens = 0;
  int64_t context_tokens = 0;      // sum over sequences of their length after the step
  int32_t distinct_positions = 0;  // each reads its own weights in position-wise layers
  int32_t sampled_rows = 0;
};

// A decayed mean of replay seconds per bucket: the last eight steps or so count for two thirds.
// Seeded by the warm-up. Not thread-safe.
class CostModel {
 public:
  void Observe(const StepShape& step, double seconds);

  // Of a bucket that never ran: that of the next larger one that did, else of the largest that did;
  // 0 when nothing ran.
  double Estimate(const StepShape& step) const;

  // Time to compute `tokens` in full batches of `largest` and one of the rest.
  double EstimateDrain(int64_t tokens, const Bucket& largest) const;

 private:
  absl::btree_map<Bucket, double> seconds_;
};

}  // namespace sluice
