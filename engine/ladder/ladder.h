// The ladder: the buckets that exist, and the choice among them for a batch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/bucket.h"
#include "engine/ladder/strategy.h"
#include "engine/options.h"
#include "engine/schedule_values.h"

namespace sluice {

// Returns the index of the first bucket that violates the ladder's order, or nullopt.
std::optional<size_t> FirstOutOfOrder(std::span<const Bucket> buckets);

// An immutable set of buckets of one layout. A packed ladder ascends in tokens and never descends
// in sequences. A padded ladder has columns of equal positions; within a column the sequences
// ascend, and no column is taller than a narrower one. Both are sorted by (positions, tokens).
class Ladder {
 public:
  // Requires at least one bucket, and that FirstOutOfOrder finds none (CHECK).
  explicit Ladder(std::vector<Bucket> buckets);

  // Returns the smallest bucket that fits, or nullptr. Packed: by tokens. Padded: the shortest
  // bucket of the narrowest column that is wide enough. O(log n).
  const Bucket* Choose(const BatchSize& size) const;

  bool padded() const { return buckets_.front().padded(); }
  // Returns the last bucket. Packed: every batch that fits any bucket fits it. Padded: the tallest
  // bucket of the widest column.
  const Bucket& largest() const { return buckets_.back(); }
  int32_t max_sequences() const { return max_sequences_; }
  bool Contains(const Bucket& bucket) const;
  std::span<const Bucket> buckets() const { return buckets_; }

  bool operator==(const Ladder& other) const { return buckets_ == other.buckets_; }

 private:
  std::vector<Bucket> buckets_;
  int32_t max_sequences_ = 0;
};

// Returns the packed ladder of these capacities and the exact maximum. The capacities may be in any
// order and must be >= 1; capacities above the maximum are dropped.
Ladder MakePackedLadder(std::vector<int32_t> capacities, const LadderLimits& limits);

// Returns the packed ladder of `options`, with at most max_buckets buckets including the exact
// maximum. Returns InvalidArgument, which names the option, if an option is out of range.
// memory_limit_bytes is applied later, to prepared plans. For kAdaptive, returns the initial
// ladder.
absl::StatusOr<Ladder> BuildLadder(const LadderOptions& options, const LadderLimits& limits);

// Returns the padded ladder with columns of these widths, which ascend. Each column has buckets
// with rows at powers of two up to the limit from max_tokens and max_sequences, and one at the
// limit. Requires widths in [1, max_tokens].
Ladder MakePaddedLadder(std::span<const int32_t> widths, const LadderLimits& limits);

// Returns the ladder of a policy. Packed policies: the packed ladder of `options`. kPaddedBuckets:
// a padded ladder with a column for each capacity that `options` choose for up to max_positions.
// kStaticPadded: a padded ladder with one column of max_positions. Returns the same errors as the
// other BuildLadder.
absl::StatusOr<Ladder> BuildLadder(const LadderOptions& options, PolicyKind policy,
                                   const LadderLimits& limits);

// The changes that lead from one ladder to another of the same layout. Padded buckets are only
// added and removed.
LadderDiff CompareLadders(const Ladder& before, const Ladder& after);

}  // namespace sluice
