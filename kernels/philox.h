// Counter-based random numbers.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// Philox4x32-10 (Salmon et al., SC 2011): writes four 32-bit words for (key, counter).
void Philox(uint64_t key, const uint32_t counter[4], uint32_t out[4]);

}  // namespace sluice::kernels
