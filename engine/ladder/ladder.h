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

// Returns the index of the first of `buckets` that may not stand where it does in a Ladder, or
// nullopt if all may.
std::optional<size_t> FirstOutOfOrder(std::span<const Bucket> buckets);

// An immutable set of buckets of one layout. A packed ladder ascends in tokens and never descends
// in sequences. A padded ladder has columns of equal positions; within a column the sequences
// ascend, and no column is taller than a narrower one. Both are sorted by (positions, tokens).
class Ladder {
 public:
  // Requires at least one bucket, and that FirstOutOfOrder finds none (CHECK).
  explicit Ladder(std::vector<Bucket> buckets);

  // Returns the smallest bucket that fits, or nullptr: packed by tokens; padded, the shortest of
  // the narrowest column that is wide enough. O(log n).
  const Bucket* Choose(const BatchSize& size) const;

  bool padded() const { return buckets_.front().padded(); }
  // Returns the last bucket. Packed: it fits whatever any other bucket fits. Padded: the tallest of
  // the widest column.
  const Bucket& largest() const { return buckets_.back(); }
  int32_t max_sequences() const { return max_sequences_; }
  bool Contains(const Bucket& bucket) const;
  std::span<const Bucket> buckets() const { return buckets_; }

  bool operator==(const Ladder& other) const { return buckets_ == other.buckets_; }

 private:
  std::vector<Bucket> buckets_;
  int32_t max_sequences_ = 0;
};

// Returns the packed ladder of these capacities, in any order, and of the exact maximum; capacities
// above the maximum are dropped. All are >= 1.
Ladder MakePackedLadder(std::vector<int32_t> capacities, const LadderLimits& limits);

// Returns the packed ladder of `options`: at most max_buckets buckets, the exact maximum among
// them. Returns InvalidArgument that names an option out of its range. memory_limit_bytes is
// applied later, to prepared plans; kAdaptive gives the ladder to begin with.
absl::StatusOr<Ladder> BuildLadder(const LadderOptions& options, const LadderLimits& limits);

// Returns the padded ladder with columns of these widths, which ascend: each has rows at powers of
// two, as many as max_tokens and max_sequences allow in the column, and that number itself.
// Requires widths in [1, max_tokens].
Ladder MakePaddedLadder(std::span<const int32_t> widths, const LadderLimits& limits);

// Returns the ladder of a policy: the packed one of `options`; for kPaddedBuckets a padded one
// whose columns are the capacities that `options` choose for up to max_positions; for kStaticPadded
// one with a single column of max_positions. Returns errors as the other BuildLadder.
absl::StatusOr<Ladder> BuildLadder(const LadderOptions& options, PolicyKind policy,
                                   const LadderLimits& limits);

// The changes that lead from one ladder to another of the same layout. Padded buckets are only
// added and removed.
LadderDiff CompareLadders(const Ladder& before, const Ladder& after);

}  // namespace sluice
