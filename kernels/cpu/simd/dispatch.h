// The kernel table of a profile.
#pragma once

#include "kernels/cpu/profile.h"
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

}  // namespace sluice::kernels::simd
