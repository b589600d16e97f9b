// The cuts between the keys of a sequence that attention sums together.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// The keys of a segment, which begins at a multiple of this position. The sums of segments are
// merged in ascending order. This decides the bits of attention in every profile.
inline constexpr int64_t kSegmentTokens = 512;

}  // namespace sluice::kernels
