// Numerics profiles of the CPU kernels.
//
// A profile determines everything that affects the bits of a result on the CPU: the instruction
// set, the dtype of the arithmetic and the kernel selection. The same profile gives the same bits
// on every machine that supports it, for every batch, bucket and thread count. The bf16 profiles
// use instructions that are defined by the processor's maker; for them this has been observed on
// only one kind of processor.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "base/enum_names.h"

namespace sluice::kernels {

enum class Profile {
  kPortableF32,  // plain C++, no instruction set beyond the baseline of x86-64 or ARM64
  kAvx2F32,      // AVX2 + FMA
  kAvx512F32,    // AVX-512 F/BW/DQ/VL
  // Like kAvx512F32, but the rows that a bf16 matrix is multiplied with are rounded to bf16
  // (nearest, ties to even; denormals count as zero). Products are exact and summed in f32.
  kAvx512Bf16,  // pairs of products by VDPBF16PS
  kAmxBf16,     // by AMX's TDPBF16PS, with another order of summation
  kArm64F32,    // ARM64 with NEON; the bits of kAvx2F32
};

constexpr auto EnumNamesOf(Profile) {
  using enum Profile;
  return EnumNameTable<Profile>({{kPortableF32, "cpu-portable-f32"},
                                 {kAvx2F32, "cpu-avx2-f32"},
                                 {kAvx512F32, "cpu-avx512-f32"},
                                 {kAvx512Bf16, "cpu-avx512-bf16"},
                                 {kAmxBf16, "cpu-amx-bf16"},
                                 {kArm64F32, "cpu-arm64-f32"}});
}

// All profiles. Each one requires all instructions of the profiles of its architecture before it.
inline constexpr Profile kProfiles[] = {Profile::kPortableF32, Profile::kAvx2F32,
                                        Profile::kAvx512F32,   Profile::kAvx512Bf16,
                                        Profile::kAmxBf16,     Profile::kArm64F32};

inline std::string_view ProfileName(Profile profile) { return NameOf(profile); }

// Sets of instructions of a processor, one bit each. A processor has a set only if it also has the
// sets that this set builds on.
using InstructionSets = unsigned;
inline constexpr InstructionSets kHasAvx2 = 1u << 0;    // and FMA
inline constexpr InstructionSets kHasAvx512 = 1u << 1;  // F, BW, DQ and VL
inline constexpr InstructionSets kHasAvx512Vnni = 1u << 2;
inline constexpr InstructionSets kHasAvx512Bf16 = 1u << 3;
inline constexpr InstructionSets kHasAmxBf16 = 1u << 4;  // and AMX-TILE
inline constexpr InstructionSets kHasAmxInt8 = 1u << 5;
inline constexpr InstructionSets kHasAvxVnni = 1u << 6;  // needs AVX2 only
inline constexpr InstructionSets kHasArm64 = 1u << 7;    // NEON, which every ARM64 processor has
inline constexpr InstructionSets kHasArm64Dots = 1u << 8;
inline constexpr InstructionSets kHasArm64Matrices = 1u << 9;  // I8MM

// Tests set this environment variable to hide instruction sets from the process, so that it behaves
// as on an older processor. Its value is one of the caps of Capped. With another value, the process
// prints an error and ends with status 2. A cap names sets of x86; on ARM64 it has no effect.
inline constexpr char kInstructionCapVariable[] = "SLUICE_TEST_ISA";

// Returns the sets of `has` that the cap keeps: "avx2" keeps AVX2, "avxvnni" also AVX-VNNI,
// "avx512" AVX2 and AVX-512 with its own VNNI but without BF16, and "" keeps every set. Returns
// InvalidArgument for another cap.
absl::StatusOr<InstructionSets> Capped(InstructionSets has, std::string_view cap);

// Returns whether this machine can execute `profile` and no cap hides its instructions.
bool ProfileSupported(Profile profile);

// Returns whether the profile multiplies bf16 matrices by activations rounded to bf16.
bool MultipliesInBf16(Profile profile);

// The instructions that multiply in int8. All of them give the same bits, so the choice does not
// belong to a profile.
enum class Int8Unit {
  kPairs,          // PMADDWD, or SMULL of ARM64
  kPairsAvx2,      // VPMADDWD
  kDotsAvx2,       // VPDPBUSD of AVX-VNNI, which has vectors of 256 bits
  kDots,           // VPDPBUSD of AVX-512 VNNI
  kTiles,          // TDPBUSD of AMX
  kDotsArm64,      // SDOT of ARM64, since ARMv8.2
  kMatricesArm64,  // SMMLA of ARM64, required since ARMv8.6
};

// Returns the fastest unit of this machine that uses no wider instructions than `profile`.
Int8Unit Int8UnitOf(Profile profile);

// Returns the last supported profile of kProfiles that computes everything in f32. It is the
// fastest such profile.
Profile BestProfile();

// Returns the fastest profile that multiplies weights in their stored precision: the last supported
// profile that multiplies in bf16. Returns BestProfile if there is none, and also if the processor
// is Intel's and this process may not use AMX: VDPBF16PS may then be slower than f32.
Profile StoredPrecisionProfile();

// Parses "auto" (StoredPrecisionProfile), "f32" (BestProfile), "bf16" (the last supported profile
// that multiplies in bf16) or a profile's name. Returns InvalidArgument for an unknown name (the
// message lists the known ones) and FailedPrecondition for a profile that is not supported.
absl::StatusOr<Profile> ParseProfile(std::string_view name);

}  // namespace sluice::kernels
