// The table of relative positions that T5 and MPNet add to scores (arXiv 1910.10683).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

// Returns the bucket of a key that is `distance` positions after the query, or before it if
// negative. Half of the buckets are for keys after the query. In each half, the first half of the
// buckets has one distance each, and the others are logarithmic up to `max_distance`.
int64_t RelativeBucket(int64_t distance, int64_t buckets, int64_t max_distance);

// Expands a table [buckets, heads] to [heads, 2 positions + kBiasSlack]. Element `positions + d` of
// a head is for a key d positions after the query. The slack is zeros; kernels may read it for keys
// that no query sees.
inline constexpr int64_t kBiasSlack = 16;
std::vector<float> BiasByDistance(std::span<const float> table, int64_t heads, int64_t max_distance,
                                  int64_t positions);

}  // namespace sluice
