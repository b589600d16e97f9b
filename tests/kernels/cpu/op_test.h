// Shared by the tests of the CPU kernels: profiles and pools.
#pragma once

#include <cstddef>
#include <string>

#include "kernels/cpu/context.h"
#include "tests/kernels/common/values.h"

namespace sluice::kernels {

// In kernels_wide_test, only the profiles whose kernels differ from the ones in kernels_ops_test.
inline std::vector<Profile> SupportedProfiles() {
  std::vector<Profile> supported;
  for (Profile profile : kProfiles) {
#ifdef SLUICE_AVX512_BY_AVX2
    if (profile <= Profile::kAvx2F32) continue;
#endif
    if (ProfileSupported(profile)) supported.push_back(profile);
  }
  return supported;
}

// Except for the GEMM, the profiles that multiply in bf16 use the AVX-512 kernels, so these
// profiles cover all other ops.
inline std::vector<Profile> F32Profiles() {
  std::vector<Profile> profiles = SupportedProfiles();
  std::erase_if(profiles, MultipliesInBf16);
  return profiles;
}

inline std::string ProfileTestName(const testing::TestParamInfo<Profile>& info) {
  std::string name(ProfileName(info.param));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

inline std::vector<float> RandomFloats(std::mt19937_64& random, int64_t n, float scale = 1.0f) {
  return RandomValues<float>(random, n, scale);
}

// Host memory with the interface of a DeviceLab.
class HostLab {
 public:
  // Returns n elements whose bits are all set, which is NaN for floats.
  template <typename T>
  T* Room(size_t n) {
    memory_.emplace_back(std::max<size_t>(1, n * sizeof(T)), std::byte{0xFF});
    return reinterpret_cast<T*>(memory_.back().data());
  }
  template <typename T>
  T* Put(const std::vector<T>& values) {
    return std::copy(values.begin(), values.end(), Room<T>(values.size())) - values.size();
  }
  template <typename T>
  const T* PutOrNull(const std::vector<T>& values) {
    return values.empty() ? nullptr : Put(values);
  }
  template <typename T>
  std::vector<T> Get(const T* values, size_t n) const {
    return {values, values + n};
  }
  void Clear() { memory_.clear(); }

 private:
  std::vector<std::vector<std::byte>> memory_;
};

// Runs each test body under the profiles that this machine can execute.
class OpTest : public testing::TestWithParam<Profile> {
 protected:
  Context One() { return {GetParam(), &one_}; }
  Context Two() { return {GetParam(), &two_}; }

 private:
  ThreadPool one_{1};
  ThreadPool two_{2};
};

}  // namespace sluice::kernels

#define SLUICE_EVERY_PROFILE(suite)                                                 \
  INSTANTIATE_TEST_SUITE_P(Profiles, suite,                                         \
                           testing::ValuesIn(sluice::kernels::SupportedProfiles()), \
                           sluice::kernels::ProfileTestName)

#define SLUICE_EVERY_F32_PROFILE(suite)                                                        \
  INSTANTIATE_TEST_SUITE_P(Profiles, suite, testing::ValuesIn(sluice::kernels::F32Profiles()), \
                           sluice::kernels::ProfileTestName)
