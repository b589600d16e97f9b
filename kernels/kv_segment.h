// The cuts between the keys of a sequence that attention sums together.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// The keys of a segment, which begins at a multiple of this position. It decides the bits of
// attention on the CPU in every profile.
inline constexpr int64_t kSegmentTokens = 512;

}  // namespace sluice::kernels
