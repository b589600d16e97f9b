// The segments of keys whose sums attention merges.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// The number of keys in a segment. Segments begin at multiples of it. The sums of segments are
// merged in ascending order. This decides the bits of attention in every profile.
inline constexpr int64_t kSegmentTokens = 512;

}  // namespace sluice::kernels
