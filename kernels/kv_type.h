// The types in which pages hold keys and values.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// kInt8: a key or a value of a head is integers with a scale of its own.
enum class KvType { kF32, kBF16, kInt8 };

constexpr int64_t KvElementBytes(KvType type) {
  return type == KvType::kF32 ? 4 : type == KvType::kBF16 ? 2 : 1;
}

}  // namespace sluice::kernels
