#include "kernels/cpu/profile.h"

#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#else
#include <cpuid.h>
#endif
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>

#include "absl/status/status.h"

namespace sluice::kernels {

static_assert(std::size(kProfiles) == CountEnumerators<Profile>());

namespace {

// Returns the sets that the processor has.
#ifdef __aarch64__
InstructionSets ProcessorSets() {
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) == 0) return kHasArm64;
  const bool matrices = (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
  return kHasArm64 | kHasArm64Dots | (matrices ? kHasArm64Matrices : 0);
}
#else
InstructionSets ProcessorSets() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
#ifdef SLUICE_AVX512_BY_AVX2
  return ~(kHasArm64 | kHasArm64Dots | kHasArm64Matrices);
#else
  InstructionSets sets = kHasAvx2;
  // Leaf 7 of CPUID, for features whose names not every compiler knows.
  constexpr unsigned kAvxVnni = 1u << 4;                                             // EAX of 7.1
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kAmxInt8 = 1u << 25;  // EDX of 7.0
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx);
  if ((eax & kAvxVnni) != 0) sets |= kHasAvxVnni;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
    return sets;
  }
  sets |= kHasAvx512;
  if (__builtin_cpu_supports("avx512vnni")) sets |= kHasAvx512Vnni;
  if (!__builtin_cpu_supports("avx512bf16")) return sets;
  sets |= kHasAvx512Bf16;
  __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx);
  if ((edx & kAmxTile) == 0 || (edx & kAmxBf16) == 0) return sets;
  return sets | kHasAmxBf16 | ((edx & kAmxInt8) != 0 ? kHasAmxInt8 : 0);
#endif
}
#endif

// Returns whether Intel made the processor. Sapphire Rapids multiplies by VDPBF16PS at half the
// rate of f32. A hypervisor may hide AMX, so AMX does not tell. Others were not measured.
bool IsIntel() {
#ifdef __aarch64__
  return false;
#else
  return __builtin_cpu_is("intel");
#endif
}

// The cap of this process, or "". A cap names sets of x86. It hides neither emulated instructions
// nor those of ARM64.
std::string_view Cap() {
#if defined(SLUICE_AVX512_BY_AVX2) || defined(__aarch64__)
  return "";
#else
  const char* const cap = std::getenv(kInstructionCapVariable);
  return cap == nullptr ? "" : cap;
#endif
}

InstructionSets SetsUnderTheCap() {
  const absl::StatusOr<InstructionSets> sets = Capped(ProcessorSets(), Cap());
  if (sets.ok()) return *sets;
  std::fprintf(stderr, "%s\n", std::string(sets.status().message()).c_str());
  std::_Exit(2);
}

// Returns whether kernels may use all of these sets.
bool Has(InstructionSets needed) {
  static const InstructionSets sets = SetsUnderTheCap();
  return (sets & needed) == needed;
}

// Returns whether AMX can be used. Its registers are 8 KiB of state, which Linux lets a process use
// only after it requests permission.
bool MayUseAmx() {
#if defined(SLUICE_AVX512_BY_AVX2) || defined(__aarch64__)
  return Has(kHasAmxBf16);
#else
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // of arch_prctl, since Linux 5.16
  static const bool may =
      Has(kHasAmxBf16) && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return may;
#endif
}

}  // namespace

absl::StatusOr<InstructionSets> Capped(InstructionSets has, std::string_view cap) {
  if (cap.empty()) return has;
  if (cap == "avx2") return has & kHasAvx2;
  if (cap == "avxvnni") return has & (kHasAvx2 | kHasAvxVnni);
  if (cap == "avx512") return has & (kHasAvx2 | kHasAvx512 | kHasAvx512Vnni);
  return absl::InvalidArgumentError("environment " + std::string(kInstructionCapVariable) + ": '" +
                                    std::string(cap) +
                                    "' is unknown; expected avx2, avxvnni or avx512");
}

bool ProfileSupported(Profile profile) {
  switch (profile) {
    case Profile::kPortableF32:
      return true;
    case Profile::kAvx2F32:
      return Has(kHasAvx2);
    case Profile::kAvx512F32:
      return Has(kHasAvx512);
    case Profile::kAvx512Bf16:
      return Has(kHasAvx512Bf16);
    case Profile::kAmxBf16:
      return MayUseAmx();
    case Profile::kArm64F32:
      return Has(kHasArm64);
  }
  return false;
}

bool MultipliesInBf16(Profile profile) {
  return profile == Profile::kAvx512Bf16 || profile == Profile::kAmxBf16;
}

Int8Unit Int8UnitOf(Profile profile) {
  if (profile == Profile::kPortableF32) return Int8Unit::kPairs;
  if (profile == Profile::kArm64F32) {
    if (Has(kHasArm64Matrices)) return Int8Unit::kMatricesArm64;
    return Has(kHasArm64Dots) ? Int8Unit::kDotsArm64 : Int8Unit::kPairs;
  }
  if (profile == Profile::kAvx2F32 || !Has(kHasAvx512Vnni)) {
    return Has(kHasAvxVnni) ? Int8Unit::kDotsAvx2 : Int8Unit::kPairsAvx2;
  }
  const bool tiles = profile == Profile::kAmxBf16 && Has(kHasAmxInt8) && MayUseAmx();
  return tiles ? Int8Unit::kTiles : Int8Unit::kDots;
}

Profile BestProfile() {
  return *std::find_if(std::rbegin(kProfiles), std::rend(kProfiles), [](Profile profile) {
    return ProfileSupported(profile) && !MultipliesInBf16(profile);
  });
}

Profile StoredPrecisionProfile() {
  if (ProfileSupported(Profile::kAmxBf16)) return Profile::kAmxBf16;
  const bool fast = ProfileSupported(Profile::kAvx512Bf16) && !IsIntel();
  return fast ? Profile::kAvx512Bf16 : BestProfile();
}

absl::StatusOr<Profile> ParseProfile(std::string_view name) {
  if (name == "auto") return StoredPrecisionProfile();
  if (name == "f32") return BestProfile();
  const bool bf16 = name == "bf16";
  if (bf16 && ProfileSupported(Profile::kAmxBf16)) return Profile::kAmxBf16;
  std::string known = "auto, f32, bf16";
  for (Profile profile : kProfiles) {
    known.append(", ").append(ProfileName(profile));
    if (name != ProfileName(profile) && !(bf16 && profile == Profile::kAvx512Bf16)) continue;
    if (ProfileSupported(profile)) return profile;
    std::string error =
        "numerics profile '" + std::string(name) + "' needs instructions that this machine lacks";
    if (!Cap().empty()) {
      error.append(" or that ").append(kInstructionCapVariable).append("=").append(Cap());
      error.append(" hides");
    }
    error.append("; use auto or f32");
    return absl::FailedPreconditionError(error);
  }
  return absl::InvalidArgumentError("unknown numerics profile '" + std::string(name) +
                                    "'; known are " + known);
}

}  // namespace sluice::kernels
