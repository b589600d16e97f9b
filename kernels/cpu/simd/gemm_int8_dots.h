// Products in int8 by fours, with VPDPBUSD or equivalent arithmetic where the instruction is
// missing (in tests). It reads x as unsigned, so rows of x hold value + 128, and 128 times the sum
// of a column is subtracted at the end.
#pragma once

#include "kernels/cpu/simd/gemm_int4.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

// Adds the products of each lane's four unsigned values of `x` by the signed ones of `w` to `sum`.
SLUICE_INLINE VecI AddFours(VecI x, VecI w, VecI sum) {
#ifdef __AVX512VNNI__
  return reinterpret_cast<VecI>(_mm512_dpbusd_epi32(
      reinterpret_cast<__m512i>(sum), reinterpret_cast<__m512i>(x), reinterpret_cast<__m512i>(w)));
#else
  for (int i = 0; i < 4; ++i) sum += (x >> 8 * i & 255) * (w << (24 - 8 * i) >> 24);
  return sum;
#endif
}

struct Int8Dots : Int8Sums<simd::kInt8Offset> {
  typedef int32_t X __attribute__((may_alias));
  static constexpr int kPanelCols = kPanelVectors * kLanes;
  static constexpr int kAtOnce = SLUICE_SIMD_UNROLL(4);

  SLUICE_INLINE const X* XOf(const Block& block) { return static_cast<const X*>(block.x); }
  SLUICE_INLINE int64_t Stride(const Block& block) { return block.stride / int64_t{sizeof(X)}; }
  SLUICE_INLINE void Widen(const int32_t* row, VecI* columns) {
#pragma GCC unroll 2
    for (int c = 0; c < kPanelVectors; ++c) columns[c] = LoadInts(row + c * kLanes);
  }
  SLUICE_INLINE VecI Spread(int32_t x) { return x - VecI{}; }
  SLUICE_INLINE VecI Add(VecI x, VecI w, VecI sum) { return AddFours(x, w, sum); }
  SLUICE_INLINE void StorePanel(int32_t* to, const VecI* sum) {
#pragma GCC unroll 2
    for (int c = 0; c < kPanelVectors; ++c) {
      *reinterpret_cast<UnalignedVecI*>(to + c * kLanes) = sum[c];
    }
  }
};

// Codes that are not expanded are the unsigned operand and values of x the signed one, whose offset
// is taken away as they are broadcast: it is the sign bit.
struct Int4Dots : Int8Dots {
  static constexpr int kRows = 8;
  static constexpr int kManyRows = 6;
  static constexpr int32_t kOffset = simd::kInt8Offset;
  static constexpr int kTotals = kPanelVectors;

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
  SLUICE_INLINE void Expand(const uint8_t* codes, VecI* first, VecI* second) {
    Unpack(codes, first, second);
#pragma GCC unroll 2
    for (int c = 0; c < kPanelVectors; ++c) {
      first[c] = SubtractEight(first[c]);
      second[c] = SubtractEight(second[c]);
    }
  }
  SLUICE_INLINE VecI SpreadSigned(int32_t x) {
    return (x ^ static_cast<int32_t>(0x80808080)) - VecI{};
  }
  SLUICE_INLINE VecI AddCodes(VecI x, VecI codes, VecI sum) { return AddFours(codes, x, sum); }
  SLUICE_INLINE VecI AddExpanded(VecI x, VecI w, VecI sum) { return AddFours(x, w, sum); }
  SLUICE_INLINE void Finish(const VecI* sum, VecI* total) {
#pragma GCC unroll 2
    for (int c = 0; c < kPanelVectors; ++c) total[c] = sum[c];
  }

 private:
  // Subtracts 8 from every byte, each of which is below 16.
  SLUICE_INLINE VecI SubtractEight(VecI bytes) {
    typedef int8_t Bytes __attribute__((vector_size(4 * SLUICE_SIMD_LANES)));
    return reinterpret_cast<VecI>(reinterpret_cast<Bytes>(bytes) - int8_t{8});
  }
};

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
