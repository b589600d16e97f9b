// The ladder: which bucket capacities exist, and which of them serves a batch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/options.h"

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

// What bounds a ladder. All >= 1.
struct LadderLimits {
  int32_t max_tokens;     // the largest bucket holds exactly this
  int32_t max_sequences;  // of any bucket; one of fewer tokens holds as many sequences as tokens
  int32_t tile_tokens;    // rows that the device computes together
};

// Chooses token capacities. Stateless strategies return the same for the same limits.
class LadderStrategy {
 public:
  virtual ~LadderStrategy() = default;
  // In any order and number; the ladder adds the exact maximum, drops what is above it and thins
  // the rest to max_buckets. InvalidArgument names the option that is out of its range.
  virtual absl::StatusOr<std::vector<int32_t>> Capacities(const LadderLimits& limits) const = 0;
};

std::unique_ptr<LadderStrategy> MakeLadderStrategy(const LadderOptions& options);

// At most options.max_buckets buckets, the exact maximum among them. InvalidArgument names the option
// that is out of its range.
absl::StatusOr<Ladder> BuildLadder(const LadderOptions& options, const LadderLimits& limits);

// The power of two from `tokens` on, clamped to [floor, cap]: the geometric ladder of ratio 2 in
// closed form. Requires 0 <= tokens <= 2^30 and 1 <= floor <= cap.
int32_t PowerOfTwoCapacity(int32_t tokens, int32_t floor, int32_t cap);

}  // namespace sluice
