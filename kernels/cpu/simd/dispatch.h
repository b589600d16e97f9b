// The kernel tables of a profile.
#pragma once

#include "kernels/cpu/profile.h"
#include "kernels/cpu/simd/int8.h"
#include "kernels/cpu/simd/table.h"

namespace sluice::kernels::simd {

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
      break;
  }
  return kInt8Portable;
}

}  // namespace sluice::kernels::simd
