#include "kernels/cpu/kv_cache.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>

#include "kernels/cpu/simd/dispatch.h"
#include "kernels/dtype.h"

namespace sluice::kernels {
namespace {

// The place of a key or a value in a slab of keys or values. Its features are kStride elements
// apart.
template <int64_t kStride>
struct Place {
  std::byte* slab;
  int64_t first;  // the index of its first feature
  int64_t token;  // within the page
  int64_t elements;

  template <typename T>
  T* At(int64_t feature) const {
    return reinterpret_cast<T*>(slab) + first + feature * kStride;
  }
  float* scale() const { return reinterpret_cast<float*>(slab + elements) + token; }
};
using KeyPlace = Place<kPageTokens>;
using ValuePlace = Place<1>;

std::byte* SlabOf(const KvLayer& kv, void* store, int64_t slot, int32_t head) {
  const int64_t index = slot / kPageTokens * kv.kv_heads + head;
  return static_cast<std::byte*>(store) + index * kv.slab_bytes();
}

KeyPlace PlaceOfKey(const KvLayer& kv, int64_t slot, int32_t head) {
  const int64_t token = slot % kPageTokens;
  return {SlabOf(kv, kv.k, slot, head), token, token, int64_t{kv.head_dim} * kPageTokens};
}

ValuePlace PlaceOfValue(const KvLayer& kv, int64_t slot, int32_t head) {
  const int64_t token = slot % kPageTokens;
  return {SlabOf(kv, kv.v, slot, head), token * kv.head_dim, token,
          int64_t{kv.head_dim} * kPageTokens};
}

template <int64_t kStride>
void StoreInt8(const float* x, int64_t n, const Place<kStride>& place) {
  constexpr int32_t kMagnitude = 0x7FFFFFFF, kInfinity = 0x7F800000;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to integers
  int32_t bits = 0;  // of the largest magnitude; the bits of NaN are above the bits of all numbers
  for (int64_t d = 0; d < n; ++d) bits = std::max(bits, std::bit_cast<int32_t>(x[d]) & kMagnitude);
  const auto largest = std::bit_cast<float>(bits);
  const bool counts = bits < kInfinity && largest >= simd::kInt8Least;
  *place.scale() = bits >= kInfinity ? std::numeric_limits<float>::quiet_NaN()
                   : counts          ? largest / simd::kInt8Most
                                     : 0.0f;
  const float inverse = counts ? simd::kInt8Most / largest : 0.0f;
  for (int64_t d = 0; d < n; ++d) {
    const float rounded = (counts ? x[d] : 0.0f) * inverse + kRound;
    *place.template At<int8_t>(d) =
        static_cast<int8_t>(std::bit_cast<int32_t>(rounded) - std::bit_cast<int32_t>(kRound));
  }
}

template <int64_t kStride>
void Store(const KvLayer& kv, const float* x, const Place<kStride>& place) {
  const int64_t n = kv.head_dim;
  switch (kv.type) {
    case KvType::kF32:
      if constexpr (kStride == 1) {
        std::memcpy(place.template At<float>(0), x, static_cast<size_t>(n) * sizeof(float));
      } else {
        for (int64_t d = 0; d < n; ++d) *place.template At<float>(d) = x[d];
      }
      return;
    case KvType::kBF16:
      for (int64_t d = 0; d < n; ++d) *place.template At<uint16_t>(d) = RoundToBF16(x[d]);
      return;
    case KvType::kInt8:
      StoreInt8(x, n, place);
      return;
  }
}

template <int64_t kStride>
float Read(const KvLayer& kv, const Place<kStride>& place, int64_t feature) {
  switch (kv.type) {
    case KvType::kF32:
      return *place.template At<float>(feature);
    case KvType::kBF16:
      return LoadAsFloat(place.template At<uint16_t>(feature), DType::kBF16, 0);
    case KvType::kInt8:
      break;
  }
  return static_cast<float>(*place.template At<int8_t>(feature)) * *place.scale();
}

}  // namespace

void StoreKey(const KvLayer& kv, int64_t slot, int32_t head, const float* key) {
  Store(kv, key, PlaceOfKey(kv, slot, head));
}

void StoreValue(const KvLayer& kv, int64_t slot, int32_t head, const float* value) {
  Store(kv, value, PlaceOfValue(kv, slot, head));
}

void StoreHead(Profile profile, const KvLayer& kv, int64_t slot, int32_t head, int64_t count,
               const HeadRows& keys, const HeadRows& values) {
  if (count > 1 && kv.type == KvType::kF32) {
    simd::TableFor(profile).store_keys(keys.x, keys.stride, count, kv.head_dim,
                                       PlaceOfKey(kv, slot, head).At<float>(0));
  } else {
    for (int64_t i = 0; i < count; ++i) StoreKey(kv, slot + i, head, keys.x + i * keys.stride);
  }
  for (int64_t i = 0; i < count; ++i) StoreValue(kv, slot + i, head, values.x + i * values.stride);
}

void FetchSlot(const KvLayer& kv, int64_t slot, int32_t head) {
  constexpr int64_t kLineBytes = 64;
  const std::byte* const keys = SlabOf(kv, kv.k, slot, head);
  for (int64_t i = 0; i < kv.slab_bytes(); i += kLineBytes) __builtin_prefetch(keys + i, 1);
  const int64_t bytes = kv.head_dim * KvElementBytes(kv.type);
  const std::byte* const value = SlabOf(kv, kv.v, slot, head) + slot % kPageTokens * bytes;
  for (int64_t i = 0; i < bytes; i += kLineBytes) __builtin_prefetch(value + i, 1);
}

void CopyPositions(const KvLayer& kv, const PageCopy& copy) {
  const int64_t bytes = KvElementBytes(kv.type), elements = int64_t{kv.head_dim} * kPageTokens;
  // The rows of a slab with elements of these positions, and how many elements of each are copied.
  const auto copy_rows = [&](void* store, int32_t head, int64_t rows, int64_t count) {
    const std::byte* from = SlabOf(kv, store, int64_t{copy.from} * kPageTokens, head);
    std::byte* to = SlabOf(kv, store, int64_t{copy.to} * kPageTokens, head);
    const int64_t stride = elements / rows * bytes;
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(to + row * stride, from + row * stride, static_cast<size_t>(count * bytes));
    }
    if (kv.type != KvType::kInt8) return;
    std::memcpy(to + elements, from + elements, copy.positions * sizeof(float));
  };
  for (int32_t head = 0; head < kv.kv_heads; ++head) {
    copy_rows(kv.k, head, kv.head_dim, copy.positions);
    copy_rows(kv.v, head, 1, int64_t{copy.positions} * kv.head_dim);
  }
}

float KeyAt(const KvLayer& kv, int64_t slot, int32_t head, int32_t feature) {
  return Read(kv, PlaceOfKey(kv, slot, head), feature);
}

float ValueAt(const KvLayer& kv, int64_t slot, int32_t head, int32_t feature) {
  return Read(kv, PlaceOfValue(kv, slot, head), feature);
}

}  // namespace sluice::kernels
