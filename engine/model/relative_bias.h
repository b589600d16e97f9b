// Tables of relative positions: the ones that T5 and MPNet add to scores (arXiv 1910.10683), and
// the ones of disentangled attention (arXiv 2006.03654).
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

// Returns the bias of ALiBi (arXiv 2108.12409) in the same layout: -slope * |d|, in both
// directions. The slopes are 2^(-8 i / n) for i = 1 .. n, where n is the largest power of two up to
// the number of heads. Other heads have the slopes 2^(-4 i / n) for odd i.
std::vector<float> AlibiByDistance(int64_t heads, int64_t positions);

// Returns the row in a table of 2 `span` rows for a key `distance` positions after its query.
// Distance 0 has row `span`, and later keys have lower rows. If `max_distance` is 0, each distance
// has its own row. Otherwise distances up to span / 2 have their own rows, and longer ones share
// rows: they are logarithmic up to `max_distance`. All distances beyond the table have its first or
// its last row. Requires that `max_distance` is 0 or above span / 2 + 1.
int64_t RelativeRow(int64_t distance, int64_t span, int64_t max_distance);
// Returns the rows for the distances -positions to positions - 1.
std::vector<int32_t> RelativeRows(int64_t span, int64_t max_distance, int64_t positions);

}  // namespace sluice
