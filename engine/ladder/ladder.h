// The ladder: which buckets exist, and which of them serves a batch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/bucket.h"
#include "engine/ladder/strategy.h"
#include "engine/options.h"

namespace sluice {

// The index of the first of `buckets` that may not stand where it does in a Ladder; nullopt: they all
// may.
std::optional<size_t> FirstOutOfOrder(std::span<const Bucket> buckets);

// An immutable set of buckets of one layout. A packed ladder ascends in tokens and never descends in
// sequences. A padded ladder has columns of equal positions; within a column the sequences ascend,
// and no column is taller than a narrower one. Either is sorted by (positions, tokens).
class Ladder {
 public:
  // FirstOutOfOrder must find none, and there must be one (CHECK).
  explicit Ladder(std::vector<Bucket> buckets);

  // The smallest bucket that fits: packed by tokens; padded the shortest of the narrowest column that
  // is wide enough. nullptr when none does. O(log n).
  const Bucket* Choose(const BatchSize& size) const;

  bool padded() const { return buckets_.front().padded(); }
  // Packed: fits whatever any other bucket fits. Padded: the tallest of the widest.
  const Bucket& largest() const { return buckets_.back(); }
  int32_t max_sequences() const { return max_sequences_; }
  std::span<const Bucket> buckets() const { return buckets_; }

  bool operator==(const Ladder& other) const { return buckets_ == other.buckets_; }

 private:
  std::vector<Bucket> buckets_;
  int32_t max_sequences_ = 0;
};

// The packed ladder of these capacities in any order, and of the exact maximum; those above it are
// dropped. All >= 1.
Ladder MakePackedLadder(std::vector<int32_t> capacities, const LadderLimits& limits);

// The packed ladder of `options`: at most max_buckets buckets, the exact maximum among them.
// InvalidArgument names the option that is out of its range. (memory_limit_bytes needs the prepared
// plans and is applied to these; kAdaptive gives the ladder to begin with.)
absl::StatusOr<Ladder> BuildLadder(const LadderOptions& options, const LadderLimits& limits);

// The ladder of a padded policy: kPaddedBuckets has columns at powers of two up to max_positions,
// kStaticPadded the one of max_positions; both rows at powers of two, as many as max_tokens and
// max_sequences allow in the column, which is its last one. Requires max_positions <= max_tokens.
Ladder BuildPaddedLadder(PolicyKind policy, const LadderLimits& limits, int32_t max_positions);

// What became of a ladder. The buckets that both ladders have divide the sizes into ranges; within a
// range, p buckets of `before` alone gave way to q of `after` alone:
//   added:   the q
//   removed: the p, when a bucket that both have serves their sizes (q = 0), or each was moved (q = p)
//   merged:  the p, when fewer serve their sizes (0 < q < p)
//   split:   the p, when more do (p < q)
// Every bucket that is not in both is in exactly one of the four. All ascend. Packed ladders.
struct LadderDiff {
  std::vector<Bucket> added;                   // of `after`
  std::vector<Bucket> removed, merged, split;  // of `before`
  bool empty() const { return added.empty() && removed.empty() && merged.empty() && split.empty(); }
};
LadderDiff CompareLadders(const Ladder& before, const Ladder& after);

}  // namespace sluice
