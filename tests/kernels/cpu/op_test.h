// Shared by the tests of the ops: profiles, pools, random data and the table of tolerances.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/context.h"

namespace sluice::kernels {

inline constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline std::vector<Profile> SupportedProfiles() {
  std::vector<Profile> supported;
  for (Profile profile : kProfiles) {
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

// The largest errors against the reference in double, relative to the largest value of the tensor
// (or 1, if that is larger). Weights of every dtype are widened exactly, so one column serves all.
enum class Op {
  kGemm,
  kAttention,
  kDiagnostics,
  kNorm,
  kLayerNorm,
  kRope,
  kActivation,
  kMix,
  kLogSumExp
};
inline double Tolerance(Op op) {
  switch (op) {
    case Op::kGemm:
      return 4e-6;
    case Op::kAttention:
      return 4e-6;
    case Op::kLayerNorm:
    case Op::kDiagnostics:
      return 1e-5;
    case Op::kNorm:
    case Op::kRope:
    case Op::kActivation:
    case Op::kMix:
      return 1e-6;
    case Op::kLogSumExp:
      return 5e-7;
  }
  return 0;
}

inline testing::AssertionResult Matches(Op op, std::span<const float> actual,
                                        std::span<const double> expected) {
  if (actual.size() != expected.size()) {
    return testing::AssertionFailure() << actual.size() << " values, not " << expected.size();
  }
  double largest = 1;
  for (double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::abs(actual[i] - expected[i]) <= Tolerance(op) * largest) continue;
    return testing::AssertionFailure()
           << "element " << i << " is " << actual[i] << ", not " << expected[i];
  }
  return testing::AssertionSuccess();
}

inline std::vector<float> RandomFloats(std::mt19937_64& random, int64_t n, float scale = 1.0f) {
  std::uniform_real_distribution<float> uniform(-scale, scale);
  std::vector<float> out(static_cast<size_t>(n));
  for (float& value : out) value = uniform(random);
  return out;
}

inline std::vector<double> Widen(std::span<const float> x) { return {x.begin(), x.end()}; }

// Returns a random number in [low, high].
inline int64_t RandomInt(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

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
