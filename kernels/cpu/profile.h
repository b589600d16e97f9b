// Numerics profiles of the CPU kernels.
//
// A profile names everything that decides the bits of a result on the CPU: the instruction set, the
// dtype of the arithmetic and the kernel selection. Same profile, same bits: on every machine that
// supports it, for every batch, bucket and thread count.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"

namespace sluice::kernels {

enum class Profile {
  kPortableF32,  // plain C++, no instruction set beyond x86-64 baseline; "cpu-portable-f32"
  kAvx2F32,      // AVX2 + FMA; "cpu-avx2-f32"
  kAvx512F32,    // AVX-512 F/BW/DQ/VL, dense GEMM by oneDNN where it passes the load-time check;
                 // "cpu-avx512-f32"
};

std::string_view ProfileName(Profile profile);

// True when this machine can execute `profile`.
bool ProfileSupported(Profile profile);

// The fastest supported profile.
Profile BestProfile();

// "auto" or a profile's name. InvalidArgument for an unknown name (the message lists the known
// ones), FailedPrecondition for one that this machine cannot execute.
absl::StatusOr<Profile> ParseProfile(std::string_view name);

}  // namespace sluice::kernels
