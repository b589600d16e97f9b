// The paged keys and values of one layer.
//
// A page holds kPageTokens consecutive positions of one sequence. Keys are stored transposed inside
// the page, so that a query is multiplied with kPageTokens keys at once without horizontal sums:
//   k: [pages, kv_heads, head_dim, kPageTokens]     v: [pages, kv_heads, kPageTokens, head_dim]
// The elements have a KvType. bf16 elements are rounded to nearest, ties to even. In int8, the
// kPageTokens scales of a head of a page are stored in f32 after its elements:
//   element = round(x * (127 / max|x|)), ties to even; scale = max|x| / 127
// over the features of one key or value. It counts as zeros if max|x| is below 2^-100, and its
// scale is NaN if it is not finite.
// A KV slot is page * kPageTokens + position % kPageTokens. Slots that were never written are never
// used as data (tests fill them with NaN).
#pragma once

#include <cstdint>

#include "kernels/kv_segment.h"
#include "kernels/kv_type.h"
#include "kernels/page_copy.h"

namespace sluice::kernels {

enum class Profile;

inline constexpr int kPageTokens = 16;
// The most features of a head.
inline constexpr int32_t kMaxHeadDim = 1024;

struct KvLayer {
  void* k;
  void* v;
  int32_t kv_heads;
  int32_t head_dim;
  KvType type = KvType::kF32;

  // The bytes of the keys, or of the values, of one head in a page.
  int64_t slab_bytes() const {
    const int64_t scales = type == KvType::kInt8 ? kPageTokens * int64_t{sizeof(float)} : 0;
    return int64_t{head_dim} * kPageTokens * KvElementBytes(type) + scales;
  }
  // The bytes of the keys, or of the values, of a page.
  int64_t page_bytes() const { return kv_heads * slab_bytes(); }
};

// Writes a key or a value, [head_dim], of a head to a slot.
void StoreKey(const KvLayer& kv, int64_t slot, int32_t head, const float* key);
void StoreValue(const KvLayer& kv, int64_t slot, int32_t head, const float* value);

// Some keys or values of a head: [.., head_dim], `stride` floats apart.
struct HeadRows {
  const float* x;
  int64_t stride;
};
// Writes `count` keys and values of a head to the slots from `slot` on. The slots must be in one
// page.
void StoreHead(Profile profile, const KvLayer& kv, int64_t slot, int32_t head, int64_t count,
               const HeadRows& keys, const HeadRows& values);
// Prefetches the memory that StoreKey and StoreValue write for a slot and head.
void FetchSlot(const KvLayer& kv, int64_t slot, int32_t head);
// Copies the first positions of a page to another page, bit by bit.
void CopyPositions(const KvLayer& kv, const PageCopy& copy);

// Returns a feature of the key or the value in a slot.
float KeyAt(const KvLayer& kv, int64_t slot, int32_t head, int32_t feature);
float ValueAt(const KvLayer& kv, int64_t slot, int32_t head, int32_t feature);

}  // namespace sluice::kernels
