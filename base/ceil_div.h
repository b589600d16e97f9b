// Whole parts that it takes to hold a number.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// ceil(a / b); a >= 0, b > 0, and a + b does not overflow.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace sluice::kernels
