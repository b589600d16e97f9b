// Sizes in bytes, signed like all counts, so that `count * kSizeOf<T>` does not mix signs.
#pragma once

#include <cstdint>

namespace sluice {

// The bytes of one T.
template <typename T>
inline constexpr int64_t kSizeOf = sizeof(T);

}  // namespace sluice
