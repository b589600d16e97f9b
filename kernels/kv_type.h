// The types of keys and values in pages.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// kInt8: each key or value of a head is stored as integers with its own scale.
enum class KvType { kF32, kBF16, kInt8 };

constexpr int64_t KvElementBytes(KvType type) {
  return type == KvType::kF32 ? 4 : type == KvType::kBF16 ? 2 : 1;
}

}  // namespace sluice::kernels
