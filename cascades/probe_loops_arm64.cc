#include <arm_neon.h>

#include "cascades/probe_loops.h"

namespace sluice::probe {
namespace {

using kernels::Int8Unit;
using kernels::Profile;

// Runs independent chains of `add(sum)` in registers. The compiler cannot see the start values,
// because it would merge chains with equal ones.
template <typename Vector, typename Add>
__attribute__((always_inline)) inline void RunChains(int64_t steps, Add add) {
  Vector sum[kChains] = {};
  for (Vector& s : sum) Keep(s);
  for (int64_t i = 0; i < steps; ++i) {
#pragma GCC unroll 12
    for (Vector& s : sum) s = add(s);
  }
  for (Vector& s : sum) Keep(s);
}

void MultiplyPortable(int64_t steps) {
  const float32x4_t factor = vdupq_n_f32(0.999f);
  RunChains<float32x4_t>(
      steps, [factor](float32x4_t s) { return vaddq_f32(vmulq_f32(s, factor), factor); });
}

void MultiplyFused(int64_t steps) {
  const float32x4_t factor = vdupq_n_f32(0.999f);
  RunChains<float32x4_t>(steps, [factor](float32x4_t s) { return vfmaq_f32(factor, s, factor); });
}

void MultiplyInt8Pairs(int64_t steps) {
  int16x8_t factor = vdupq_n_s16(3);
  Keep(factor);
  RunChains<int32x4_t>(steps, [factor](int32x4_t s) {
    return vaddq_s32(s, vpaddq_s32(vmull_s16(vget_low_s16(factor), vget_low_s16(factor)),
                                   vmull_high_s16(factor, factor)));
  });
}

// SDOT and SMMLA are assembly, because the rest of the source has no instructions beyond ARMv8.0.
void MultiplyInt8Dots(int64_t steps) {
  const int8x16_t factor = vdupq_n_s8(3);
  RunChains<int32x4_t>(steps, [factor](int32x4_t s) {
    asm volatile(
        ".arch armv8.2-a+dotprod\n\t"
        "sdot %0.4s, %1.16b, %1.16b\n\t"
        ".arch armv8-a"
        : "+w"(s)
        : "w"(factor));
    return s;
  });
}

void MultiplyInt8Matrices(int64_t steps) {
  const int8x16_t factor = vdupq_n_s8(3);
  RunChains<int32x4_t>(steps, [factor](int32x4_t s) {
    asm volatile(
        ".arch armv8.2-a+i8mm\n\t"
        "smmla %0.4s, %1.16b, %1.16b\n\t"
        ".arch armv8-a"
        : "+w"(s)
        : "w"(factor));
    return s;
  });
}

void Read(const std::byte* begin, int64_t part) {
  int8x16_t sum[kStreams] = {};
  for (int64_t i = 0; i < part; i += kLine) {
#pragma GCC unroll 4
    for (int s = 0; s < kStreams; ++s) {
      const std::byte* const line = begin + s * part + i;
      __builtin_prefetch(line + kAhead);
#pragma GCC unroll 4
      for (int64_t at = 0; at < kLine; at += int64_t{sizeof(int8x16_t)}) {
        sum[s] = veorq_s8(sum[s], vld1q_s8(reinterpret_cast<const int8_t*>(line + at)));
      }
    }
  }
  for (int8x16_t& s : sum) Keep(s);
}

}  // namespace

MultiplyAdds MultiplyAddsOf(Profile profile) {
  return {profile == Profile::kArm64F32 ? MultiplyFused : MultiplyPortable, 2.0 * 4 * kChains};
}

MultiplyAdds Int8MultiplyAddsOf(Profile profile) {
  const Int8Unit unit = Int8UnitOf(profile);
  if (unit == Int8Unit::kMatricesArm64) return {MultiplyInt8Matrices, 2.0 * 32 * kChains};
  if (unit == Int8Unit::kDotsArm64) return {MultiplyInt8Dots, 2.0 * 16 * kChains};
  return {MultiplyInt8Pairs, 2.0 * 8 * kChains};
}

Reader ReaderOf(Profile) { return Read; }

}  // namespace sluice::probe
