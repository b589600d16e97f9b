// Division that rounds up.
#pragma once

#include <cstdint>

namespace sluice {

// Returns ceil(a / b). Requires a >= 0 and b > 0, and that a + b does not overflow.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace sluice
