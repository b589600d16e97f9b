#include "kernels/cpu/profile.h"

#include <string>

#include "absl/status/status.h"

namespace sluice::kernels {
namespace {

constexpr Profile kProfiles[] = {Profile::kAvx512F32, Profile::kAvx2F32, Profile::kPortableF32};

bool HasAvx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

bool HasAvx512() {
#ifdef SLUICE_AVX512_BY_AVX2
  return HasAvx2();
#else
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
}

}  // namespace

std::string_view ProfileName(Profile profile) {
  switch (profile) {
    case Profile::kPortableF32:
      return "cpu-portable-f32";
    case Profile::kAvx2F32:
      return "cpu-avx2-f32";
    case Profile::kAvx512F32:
      return "cpu-avx512-f32";
  }
  return "unknown";
}

bool ProfileSupported(Profile profile) {
  switch (profile) {
    case Profile::kPortableF32:
      return true;
    case Profile::kAvx2F32:
      return HasAvx2();
    case Profile::kAvx512F32:
      return HasAvx512();
  }
  return false;
}

Profile BestProfile() {
  for (Profile profile : kProfiles) {
    if (ProfileSupported(profile)) return profile;
  }
  return Profile::kPortableF32;
}

absl::StatusOr<Profile> ParseProfile(std::string_view name) {
  if (name == "auto") return BestProfile();
  std::string known = "auto";
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
