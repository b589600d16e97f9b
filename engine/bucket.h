// The size of a step batch, and the capacity that a plan is prepared for.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>

namespace sluice {

// The size of a step batch. All >= 1.
struct BatchSize {
  int32_t tokens = 0;  // useful tokens: all tokens of all sequences, without padding
  int32_t sequences = 0;
  int32_t longest = 0;  // tokens of the longest sequence

  void Add(int32_t sequence_tokens) {
    tokens += sequence_tokens;
    ++sequences;
    longest = std::max(longest, sequence_tokens);
  }
  bool operator==(const BatchSize&) const = default;
};

// The capacity of a plan.
//
// Packed layout: a step of up to `tokens` rows, from up to `sequences` sequences, without padding.
// Padded layout: a rectangle of `sequences` x `positions` rows, all of which are computed; rows
// that belong to no sequence are padding. A batch fits if each of its sizes is <= the capacity: a
// range guard, never an equality guard.
struct Bucket {
  int32_t tokens = 0;  // padded: sequences * positions
  int32_t sequences = 0;
  int32_t positions = 0;  // 0 if packed

  static Bucket Padded(int32_t sequences, int32_t positions) {
    return {.tokens = sequences * positions, .sequences = sequences, .positions = positions};
  }

  bool padded() const { return positions > 0; }
  bool Fits(const BatchSize& size) const {
    return size.sequences <= sequences &&
           (padded() ? size.longest <= positions : size.tokens <= tokens);
  }

  auto operator<=>(const Bucket&) const = default;
};

// Returns the largest step that runs in the bucket. If attention is in both directions, the padding
// of a row is a separate sequence, so that no other token attends to it.
inline Bucket StepCapacity(Bucket bucket, bool causal) {
  if (bucket.padded() && !causal) bucket.sequences = std::min(2 * bucket.sequences, bucket.tokens);
  return bucket;
}

}  // namespace sluice
