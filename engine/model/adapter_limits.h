// The limits of low-rank adapters.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice {

inline constexpr int64_t kMaxAdapterRank = 512;
inline constexpr double kMaxAdapterAlpha = 65536;
inline constexpr size_t kMaxAdapters = 1024;                 // of a model
inline constexpr int64_t kAdapterMemory = int64_t{1} << 30;  // the default of a model

}  // namespace sluice
