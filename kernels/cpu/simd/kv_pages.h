// The elements of KV pages, in the form that attention reads. Included by attention.h; see vec.h.
//
// A source chooses one of the types below as SLUICE_SIMD_PAGES. With a template parameter instead,
// the compiler would decide about the registers and calls of all types together.
#pragma once

#include "kernels/cpu/kv_cache.h"
#include "kernels/cpu/simd/vec.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

struct F32Pages {
  typedef float Element;
  static constexpr bool kScaled = false;  // keys and values have scales
  static constexpr int64_t kTail = 0;     // elements after the features of a slab

  SLUICE_INLINE_MEMBER static VecF Widen(const float* p) { return Load(p); }
  SLUICE_INLINE_MEMBER static float WidenOne(float value) { return value; }
  // Returns n elements times their scale: the stored ones, or a copy in `room`.
  SLUICE_INLINE_MEMBER static const float* WidenAll(const float* p, int64_t n, float scale,
                                                    float* room) {
    return p;
  }
  // Returns the scales of a slab, [kPageTokens], or nullptr.
  SLUICE_INLINE_MEMBER static const float* ScalesOf(const float* slab, int64_t head_dim) {
    return nullptr;
  }
};

struct BF16Pages {
  typedef uint16_t Element;
  static constexpr bool kScaled = false;
  static constexpr int64_t kTail = 0;

  SLUICE_INLINE_MEMBER static VecF Widen(const uint16_t* p) {
    typedef uint16_t Halves __attribute__((vector_size(2 * kLanes), aligned(2), may_alias));
    const auto halves = *reinterpret_cast<const Halves*>(p);
    return reinterpret_cast<VecF>(__builtin_convertvector(halves, VecI) << 16);
  }
  SLUICE_INLINE_MEMBER static float WidenOne(uint16_t value) {
    const uint32_t bits = uint32_t{value} << 16;
    float wide;
    __builtin_memcpy(&wide, &bits, sizeof(wide));
    return wide;
  }
  SLUICE_INLINE_MEMBER static const float* WidenAll(const uint16_t* p, int64_t n, float scale,
                                                    float* room) {
    for (int64_t i = 0; i < n; ++i) room[i] = WidenOne(p[i]);
    return room;
  }
  SLUICE_INLINE_MEMBER static const float* ScalesOf(const uint16_t* slab, int64_t head_dim) {
    return nullptr;
  }
};

struct Int8Pages {
  typedef int8_t Element;
  static constexpr bool kScaled = true;
  static constexpr int64_t kTail = kPageTokens * sizeof(float);

  SLUICE_INLINE_MEMBER static VecF Widen(const int8_t* p) {
#if defined(__AVX512F__) && SLUICE_SIMD_LANES == 16
    const auto wide = reinterpret_cast<VecI>(_mm512_maskz_cvtepi8_epi32(
        kEveryLane, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__) && SLUICE_SIMD_LANES == 8
    const auto wide = reinterpret_cast<VecI>(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__) && SLUICE_SIMD_LANES == 16
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    struct {
      __m256i low, high;
    } const halves = {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
    const auto wide = __builtin_bit_cast(VecI, halves);
#else
    VecI wide;
    for (int i = 0; i < kLanes; ++i) wide[i] = p[i];
#endif
    return __builtin_convertvector(wide, VecF);
  }
  SLUICE_INLINE_MEMBER static float WidenOne(int8_t value) { return value; }
  SLUICE_INLINE_MEMBER static const float* WidenAll(const int8_t* p, int64_t n, float scale,
                                                    float* room) {
    for (int64_t i = 0; i < n; ++i) room[i] = WidenOne(p[i]) * scale;
    return room;
  }
  SLUICE_INLINE_MEMBER static const float* ScalesOf(const int8_t* slab, int64_t head_dim) {
    return reinterpret_cast<const float*>(slab + head_dim * kPageTokens);
  }
};

typedef SLUICE_SIMD_PAGES KvPages;
typedef KvPages::Element KvElement;

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
