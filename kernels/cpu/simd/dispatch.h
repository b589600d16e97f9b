// The kernel tables of a profile.
#pragma once

#include "kernels/cpu/profile.h"
#include "kernels/cpu/simd/int8.h"
#include "kernels/cpu/simd/max_sim_kernels.h"
#include "kernels/cpu/simd/state_products_kernels.h"
#include "kernels/cpu/simd/table.h"

namespace sluice::kernels::simd {

#ifdef __aarch64__

inline const Table& TableFor(Profile profile) {
  return profile == Profile::kArm64F32 ? kArm64 : kPortable;
}

inline const AttentionKernels& AttentionFor(Profile profile, KvType type) {
  if (type == KvType::kF32) return TableFor(profile).attention;
  const bool bf16 = type == KvType::kBF16;
  if (profile != Profile::kArm64F32) return bf16 ? kBF16PagesPortable : kInt8PagesPortable;
  return bf16 ? kBF16PagesArm64 : kInt8PagesArm64;
}

inline const Int8Table& Int8TableFor(Profile profile) {
  const Int8Unit unit = Int8UnitOf(profile);
  if (unit == Int8Unit::kMatricesArm64) return kInt8MatricesArm64;
  return unit == Int8Unit::kDotsArm64 ? kInt8DotsArm64 : kInt8Portable;
}

// The portable kernel uses fused multiply-adds, too.
inline MaxSimKernel MaxSimFor(Profile) { return MaxSimPortable; }
// The portable kernel uses NEON, too.
inline StateProductsKernel StateProductsFor(Profile) { return StateProductsPortable; }

#else

inline const Table& TableFor(Profile profile) {
  switch (profile) {
    case Profile::kAvx2F32:
      return kAvx2;
    case Profile::kAvx512F32:
      return kAvx512;
    case Profile::kAvx512Bf16:
      return kAvx512Bf16;
    case Profile::kAmxBf16:
      return kAmx;
    case Profile::kPortableF32:
    case Profile::kArm64F32:
      break;
  }
  return kPortable;
}

inline const AttentionKernels& AttentionFor(Profile profile, KvType type) {
  if (type == KvType::kF32) return TableFor(profile).attention;
  const bool bf16 = type == KvType::kBF16;
  if (profile == Profile::kPortableF32) return bf16 ? kBF16PagesPortable : kInt8PagesPortable;
  if (profile == Profile::kAvx2F32) return bf16 ? kBF16PagesAvx2 : kInt8PagesAvx2;
  return bf16 ? kBF16PagesAvx512 : kInt8PagesAvx512;
}

inline const Int8Table& Int8TableFor(Profile profile) {
  switch (Int8UnitOf(profile)) {
    case Int8Unit::kPairsAvx2:
      return kInt8Avx2;
    case Int8Unit::kDotsAvx2:
      return kInt8DotsAvx2;
    case Int8Unit::kDots:
      return kInt8Dots;
    case Int8Unit::kTiles:
      return kInt8Tiles;
    case Int8Unit::kPairs:
    case Int8Unit::kDotsArm64:
    case Int8Unit::kMatricesArm64:
      break;
  }
  return kInt8Portable;
}

inline MaxSimKernel MaxSimFor(Profile profile) {
  if (profile == Profile::kPortableF32) return MaxSimPortable;
  return profile == Profile::kAvx2F32 ? MaxSimAvx2 : MaxSimAvx512;
}

inline StateProductsKernel StateProductsFor(Profile profile) {
  if (profile == Profile::kPortableF32) return StateProductsPortable;
  return profile == Profile::kAvx2F32 ? StateProductsAvx2 : StateProductsAvx512;
}

#endif

}  // namespace sluice::kernels::simd
