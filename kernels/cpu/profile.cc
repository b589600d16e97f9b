#include "kernels/cpu/profile.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/status/status.h"

namespace sluice::kernels {
namespace {

#ifndef SLUICE_AVX512_BY_AVX2
// Bits of leaf 7 of CPUID, EDX.
constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kAmxInt8 = 1u << 25;

// Returns whether the CPU has all of these bits.
bool CpuHas(unsigned bits) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & bits) == bits;
}
#endif

bool HasAvx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

bool HasAvx512() {
#ifdef SLUICE_AVX512_BY_AVX2
  return HasAvx2();
#else
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
}

bool HasAvx512Bf16() {
#ifdef SLUICE_AVX512_BY_AVX2
  return HasAvx2();
#else
  return HasAvx512() && __builtin_cpu_supports("avx512bf16");
#endif
}

// Returns whether AMX can be used. Its registers are 8 KiB of state, which Linux lets a process use
// only after it requests permission.
bool HasAmx() {
#ifdef SLUICE_AVX512_BY_AVX2
  return HasAvx2();
#else
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // of arch_prctl, since Linux 5.16
  static const bool has = HasAvx512Bf16() && CpuHas(kAmxBf16 | kAmxTile) &&
                          syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return has;
#endif
}

// Returns whether the processor has AMX, whether or not it can be used.
bool ProcessorHasAmx() {
#ifdef SLUICE_AVX512_BY_AVX2
  return true;
#else
  return CpuHas(kAmxBf16 | kAmxTile);
#endif
}

bool HasInt8Dots() {
#ifdef SLUICE_AVX512_BY_AVX2
  return HasAvx2();
#else
  return HasAvx512() && __builtin_cpu_supports("avx512vnni");
#endif
}

bool HasInt8Tiles() {
#ifdef SLUICE_AVX512_BY_AVX2
  return HasAvx2();
#else
  static const bool has = HasAmx() && HasInt8Dots() && CpuHas(kAmxInt8);
  return has;
#endif
}

}  // namespace

bool ProfileSupported(Profile profile) {
  switch (profile) {
    case Profile::kPortableF32:
      return true;
    case Profile::kAvx2F32:
      return HasAvx2();
    case Profile::kAvx512F32:
      return HasAvx512();
    case Profile::kAvx512Bf16:
      return HasAvx512Bf16();
    case Profile::kAmxBf16:
      return HasAmx();
  }
  return false;
}

bool MultipliesInBf16(Profile profile) {
  return profile == Profile::kAvx512Bf16 || profile == Profile::kAmxBf16;
}

Int8Unit Int8UnitOf(Profile profile) {
  if (profile == Profile::kPortableF32) return Int8Unit::kPairs;
  if (profile == Profile::kAvx2F32) return Int8Unit::kPairsAvx2;
  if (profile == Profile::kAmxBf16 && HasInt8Tiles()) return Int8Unit::kTiles;
  static const bool dots = HasInt8Dots();
  return dots ? Int8Unit::kDots : Int8Unit::kPairsAvx2;
}

Profile BestProfile() {
  return *std::find_if(std::rbegin(kProfiles), std::rend(kProfiles), [](Profile profile) {
    return ProfileSupported(profile) && !MultipliesInBf16(profile);
  });
}

Profile StoredPrecisionProfile() {
  if (ProfileSupported(Profile::kAmxBf16)) return Profile::kAmxBf16;
  const bool fast = ProfileSupported(Profile::kAvx512Bf16) && !ProcessorHasAmx();
  return fast ? Profile::kAvx512Bf16 : BestProfile();
}

absl::StatusOr<Profile> ParseProfile(std::string_view name) {
  if (name == "auto") return StoredPrecisionProfile();
  if (name == "f32") return BestProfile();
  if (name == "bf16" && ProfileSupported(Profile::kAmxBf16)) return Profile::kAmxBf16;
  if (name == "bf16") name = ProfileName(Profile::kAvx512Bf16);
  std::string known = "auto, f32, bf16";
  for (Profile profile : kProfiles) {
    known.append(", ").append(ProfileName(profile));
    if (name != ProfileName(profile)) continue;
    if (ProfileSupported(profile)) return profile;
    return absl::FailedPreconditionError("numerics profile '" + std::string(name) +
                                         "' needs instructions that this machine lacks");
  }
  return absl::InvalidArgumentError("unknown numerics profile '" + std::string(name) +
                                    "'; known are " + known);
}

}  // namespace sluice::kernels
