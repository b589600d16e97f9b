// Numerics profiles of the CPU kernels.
//
// A profile names everything that decides the bits of a result on the CPU: the instruction set, the
// dtype of the arithmetic and the kernel selection. Same profile, same bits: on every machine that
// supports it, for every batch, bucket and thread count. For the bf16 profiles, whose instructions
// are the maker's to define, that was seen on one kind of processor only.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "base/enum_names.h"

namespace sluice::kernels {

enum class Profile {
  kPortableF32,  // plain C++, no instruction set beyond x86-64 baseline
  kAvx2F32,      // AVX2 + FMA
  kAvx512F32,    // AVX-512 F/BW/DQ/VL
  // As kAvx512F32, but where a matrix is stored as bf16, what it is multiplied with is rounded to
  // bf16 (nearest, ties to even; denormals count as zero). Products are exact and summed in f32.
  kAvx512Bf16,  // pairs of products by VDPBF16PS
  kAmxBf16,     // by AMX's TDPBF16PS, whose order of summation is another
};

constexpr auto EnumNamesOf(Profile) {
  using enum Profile;
  return EnumNameTable<Profile>({{kPortableF32, "cpu-portable-f32"},
                                 {kAvx2F32, "cpu-avx2-f32"},
                                 {kAvx512F32, "cpu-avx512-f32"},
                                 {kAvx512Bf16, "cpu-avx512-bf16"},
                                 {kAmxBf16, "cpu-amx-bf16"}});
}

// Each needs all instructions that those before it need.
inline constexpr Profile kProfiles[] = {Profile::kPortableF32, Profile::kAvx2F32,
                                        Profile::kAvx512F32, Profile::kAvx512Bf16,
                                        Profile::kAmxBf16};

inline std::string_view ProfileName(Profile profile) { return NameOf(profile); }

// True when this machine can execute `profile`.
bool ProfileSupported(Profile profile);

// True when the profile multiplies bf16 matrices by activations rounded to bf16.
bool MultipliesInBf16(Profile profile);

// The last supported one of kProfiles that computes everything in f32, which is the fastest.
Profile BestProfile();

// "auto" (BestProfile), "bf16" (the last supported one that multiplies in bf16) or a profile's
// name. InvalidArgument for an unknown name (the message lists the known ones), FailedPrecondition
// for one that this machine cannot execute.
absl::StatusOr<Profile> ParseProfile(std::string_view name);

}  // namespace sluice::kernels
