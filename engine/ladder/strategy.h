// The strategies that choose the capacities of a ladder.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/computed_rows.h"
#include "engine/options.h"

namespace sluice {

// The bounds of a ladder. All >= 1.
struct LadderLimits {
  int32_t max_tokens;     // exact capacity of the largest bucket; at most 2^20
  int32_t max_sequences;  // of any bucket; a bucket with fewer tokens holds one sequence per token
  ComputedRows rows = ComputedRows::OfBucket();  // of the device and the model
  // The tokens of the longest sequence, and so the width of a padded ladder's widest column. For a
  // padded ladder, at most max_tokens.
  int32_t max_positions = 1;
  int32_t max_buckets = 16;  // if LadderOptions::max_buckets is 0

  // Returns the most buckets of a ladder.
  int32_t MaxBuckets(const LadderOptions& options) const {
    return options.max_buckets > 0 ? options.max_buckets : max_buckets;
  }
};

// Returns the token capacities that options.strategy chooses, in any order and number. kAdaptive
// and kHardwareAware choose only numbers of rows that the device computes exactly
// (ComputedRows::Exact). BuildLadder adds the exact maximum, drops capacities above it and thins
// the rest to max_buckets. Returns InvalidArgument, which names the option, if an option is out of
// range.
absl::StatusOr<std::vector<int32_t>> Capacities(const LadderOptions& options,
                                                const LadderLimits& limits);

// Returns the smallest power of two >= `tokens`, clamped to [floor, cap]. This is the geometric
// ladder of ratio 2 in closed form. Requires 0 <= tokens <= 2^30 and 1 <= floor <= cap.
int32_t PowerOfTwoCapacity(int32_t tokens, int32_t floor, int32_t cap);

}  // namespace sluice
