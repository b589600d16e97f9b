// How the sums of products are cut. A row's bits depend on these cuts, but not on the assignment of
// parts to blocks.
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"

namespace sluice::kernels::cuda {

// k is cut into up to kMaxSegments segments of at least kMinSegment. All segments but the last have
// the same depth, a multiple of kMinSegment that depends only on k. The sums of the segments are
// added in ascending order.
inline constexpr int32_t kMaxSegments = 8, kMinSegment = 512;
SLUICE_HOST_DEVICE constexpr int32_t SegmentDepth(int32_t k) {
  constexpr int32_t kMost = kMaxSegments * kMinSegment;
  return (k + kMost - 1) / kMost * kMinSegment;
}
SLUICE_HOST_DEVICE constexpr int32_t Segments(int32_t k) {
  return (k + SegmentDepth(k) - 1) / SegmentDepth(k);
}

// Memory that lets several blocks share the segments of a tile of 64 x 64. If it is absent, or if
// there are more tiles than kMaxSplitTiles, one block computes all segments of a tile.
inline constexpr int32_t kMaxSplitTiles = 128;
struct SplitSums {
  float* sums = nullptr;        // [SplitSumsBytes(k)] bytes with any content
  int32_t* counters = nullptr;  // [kMaxSplitTiles], zeros; they are zero again after the launch
};
// Returns 0 if there is one segment.
constexpr int64_t SplitSumsBytes(int32_t k) {
  constexpr int64_t kTileBytes = 64 * 64 * sizeof(float);
  return Segments(k) == 1 ? 0 : kMaxSplitTiles * Segments(k) * kTileBytes;
}

}  // namespace sluice::kernels::cuda
