// The ladder: which bucket capacities exist, and which of them serves a batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/options.h"
#include "engine/schedule/strategy.h"

namespace sluice {

// An immutable set of buckets, ascending in tokens and never descending in sequences.
class Ladder {
 public:
  // Any other order, or an empty set, is a broken invariant (CHECK).
  explicit Ladder(std::vector<Bucket> buckets);

  // The smallest bucket that fits, in O(log n); nullptr when none does.
  const Bucket* Choose(int32_t tokens, int32_t sequences) const;

  const Bucket& largest() const { return buckets_.back(); }
  std::span<const Bucket> buckets() const { return buckets_; }

 private:
  std::vector<Bucket> buckets_;
};

// At most options.max_buckets buckets, the exact maximum among them. InvalidArgument names the
// option that is out of its range. (memory_limit_bytes needs the prepared plans and is applied to
// these.)
absl::StatusOr<Ladder> BuildLadder(const LadderOptions& options, const LadderLimits& limits);

}  // namespace sluice
