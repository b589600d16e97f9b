// Products in int8 by groups of four: by VPDPBUSD, by SDOT of ARM64 or, in tests without the
// instruction, by equivalent arithmetic. VPDPBUSD reads x as unsigned. So rows of x have value +
// 128, and 128 times the sum of a column is subtracted. SDOT reads x as signed.
#pragma once

#include "kernels/cpu/simd/gemm_int4.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

#ifdef __aarch64__
typedef int8_t ValueOfX;
inline constexpr int32_t kOffsetOfX = 0;
#else
typedef uint8_t ValueOfX;
inline constexpr int32_t kOffsetOfX = simd::kInt8Offset;
#endif

// Adds the products of each lane's four values of `x` and signed values of `w` to `sum`. Values of
// `x` are unsigned, or with SDOT signed.
SLUICE_INLINE VecI AddFours(VecI x, VecI w, VecI sum) {
#ifdef __aarch64__
  return reinterpret_cast<VecI>(vdotq_s32(reinterpret_cast<int32x4_t>(sum),
                                          reinterpret_cast<int8x16_t>(x),
                                          reinterpret_cast<int8x16_t>(w)));
#elif defined(__AVX512VNNI__) && SLUICE_SIMD_LANES == 16
  return reinterpret_cast<VecI>(_mm512_dpbusd_epi32(
      reinterpret_cast<__m512i>(sum), reinterpret_cast<__m512i>(x), reinterpret_cast<__m512i>(w)));
#elif defined(__AVXVNNI__) && SLUICE_SIMD_LANES == 8
  return reinterpret_cast<VecI>(_mm256_dpbusd_avx_epi32(
      reinterpret_cast<__m256i>(sum), reinterpret_cast<__m256i>(x), reinterpret_cast<__m256i>(w)));
#else
  VecU total = reinterpret_cast<VecU>(sum);
  for (int i = 0; i < 4; ++i) {
    total += reinterpret_cast<VecU>((x >> 8 * i & 255) * (w << (24 - 8 * i) >> 24));
  }
  return reinterpret_cast<VecI>(total);
#endif
}

struct Int8Dots : Int8Sums<kOffsetOfX> {
  typedef int32_t X __attribute__((may_alias));
  static constexpr int kPanelCols = kPanelVectors * kLanes;
  static constexpr int kTotals = kPanelVectors;
  static constexpr int kAtOnce = SLUICE_SIMD_UNROLL(4);

  SLUICE_INLINE const X* XOf(const Block& block) { return static_cast<const X*>(block.x); }
  SLUICE_INLINE int64_t Stride(const Block& block) { return block.stride / int64_t{sizeof(X)}; }
  SLUICE_INLINE void Widen(const int32_t* row, VecI* columns) {
#pragma GCC unroll 2
    for (int c = 0; c < kPanelVectors; ++c) columns[c] = LoadInts(row + c * kLanes);
  }
  SLUICE_INLINE VecI Spread(int32_t x) { return x - VecI{}; }
  SLUICE_INLINE VecI Add(VecI x, VecI w, VecI sum) { return AddFours(x, w, sum); }
  SLUICE_INLINE void Complete(const Block& block, int64_t row, int64_t col, const VecI* sum,
                              VecF* y) {
    Scale<kTotals>(block, row, col, sum, y);
  }
};

// The codes are the unsigned operand. The values of x, which have no offset here, are the signed
// operand.
struct Int4Dots : Int8Dots {
  static constexpr int kRows = kLanes == 8 ? 4 : 8;
  static constexpr int kManyRows = kLanes == 8 ? 4 : 6;
  static constexpr bool kShared = false;
  static constexpr int kParts = 1;
  static constexpr int kSums = kPanelVectors;
  static constexpr bool kInWords = false;

  SLUICE_INLINE const X* XOf(const simd::Int4Block& block) {
    return static_cast<const X*>(block.x);
  }
  SLUICE_INLINE int64_t Stride(const simd::Int4Block& block) {
    return block.stride / int64_t{sizeof(X)};
  }
  SLUICE_INLINE void Unpack(const uint8_t* codes, VecI* first, VecI* second) {
#pragma GCC unroll 2
    for (int c = 0; c < kPanelVectors; ++c) {
      const VecI both = LoadInts(codes + c * kLanes * 4);
      first[c] = both & 0x0F0F0F0F;
      second[c] = both >> 4 & 0x0F0F0F0F;
    }
  }
  SLUICE_INLINE VecI AddCodes(VecI x, VecI codes, VecI sum) { return AddFours(codes, x, sum); }
  SLUICE_INLINE void Finish(const VecI* sum, VecI* total) {
#pragma GCC unroll 2
    for (int c = 0; c < kPanelVectors; ++c) total[c] = sum[c];
  }
  static void Quantize(const float* x, int64_t k, void* out, float* scale, int32_t* begins) {
    QuantizeRowInt4<int8_t, 8 / kParts>(x, k, out, scale, begins);
  }
};

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
