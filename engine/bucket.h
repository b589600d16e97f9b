// The size of a step batch, and the capacity that a plan is prepared for.
#pragma once

#include <compare>
#include <cstdint>

namespace sluice {

// What a step batch asks of a bucket. All >= 1.
struct BatchSize {
  int32_t tokens = 0;  // useful ones: that the sequences' next steps compute
  int32_t sequences = 0;
  int32_t longest = 0;  // tokens of the longest of them

  bool operator==(const BatchSize&) const = default;
};

// Packed layout: a step of up to `tokens` rows, from up to `sequences` sequences, without padding.
// Padded layout: a rectangle of `sequences` x `positions` rows, all of them computed; what no
// sequence fills is padding. A batch fits when each of its sizes is <= the capacity: range guards,
// never equality guards.
struct Bucket {
  int32_t tokens = 0;  // padded: sequences * positions
  int32_t sequences = 0;
  int32_t positions = 0;  // 0: packed

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

}  // namespace sluice
