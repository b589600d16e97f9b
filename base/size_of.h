// Sizes in bytes, signed as all counts are: `count * kSizeOf<T>` is no mix of signs.
#pragma once

#include <cstdint>

namespace sluice {

// The bytes of one T.
template <typename T>
inline constexpr int64_t kSizeOf = sizeof(T);

}  // namespace sluice
