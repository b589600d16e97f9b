// Shared by the kernel tests of all backends: random values and the table of tolerances.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/cuda/bfloat16.h"

namespace sluice::kernels {

using cuda::BFloat16;

inline constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Returns n values of T (float, BFloat16) in [-scale, scale].
template <typename T>
std::vector<T> RandomValues(std::mt19937_64& random, int64_t n, float scale = 1.0f) {
  std::uniform_real_distribution<float> uniform(-scale, scale);
  std::vector<T> values(static_cast<size_t>(n));
  for (T& value : values) value = cuda::Narrow<T>(uniform(random));
  return values;
}

// Returns a random number in [low, high].
template <typename Low, typename High>
std::common_type_t<Low, High> RandomInt(std::mt19937_64& random, Low low, High high) {
  return std::uniform_int_distribution<std::common_type_t<Low, High>>(low, high)(random);
}

template <typename Range>
std::vector<double> ToDouble(const Range& values) {
  std::vector<double> out;
  for (const auto& value : values) out.push_back(cuda::Widen(value));
  return out;
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// The largest errors against the reference in double on the same inputs, relative to the largest
// value of the tensor (or 1, if that is larger), for inputs of dtype T. bfloat16 rounds results to
// 8 bits, and kAttention also the probabilities.
enum class Op { kGemm, kAttention, kDiagnostics, kLayerNorm, kRowWise, kLogSumExp };
template <typename T>
double Tolerance(Op op) {
  const bool rounded = std::is_same_v<T, BFloat16>;
  switch (op) {
    case Op::kGemm:
      return rounded ? 4e-3 : 4e-6;
    case Op::kAttention:
      return rounded ? 8e-3 : 4e-6;
    case Op::kDiagnostics:
      return rounded ? 8e-3 : 1e-5;
    case Op::kLayerNorm:
      return rounded ? 4e-3 : 1e-5;
    case Op::kRowWise:
      return rounded ? 4e-3 : 1e-6;
    case Op::kLogSumExp:
      return 5e-7;
  }
  return 0;
}

inline testing::AssertionResult Within(double tolerance, std::span<const double> actual,
                                       std::span<const double> expected) {
  if (actual.size() != expected.size()) {
    return testing::AssertionFailure() << actual.size() << " values, not " << expected.size();
  }
  double largest = 1;
  for (double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::abs(actual[i] - expected[i]) <= tolerance * largest) continue;
    return testing::AssertionFailure()
           << "element " << i << " is " << actual[i] << ", not " << expected[i];
  }
  return testing::AssertionSuccess();
}

// `Input` is the dtype of the inputs of the result.
template <typename T, typename Input = T>
testing::AssertionResult Matches(Op op, const std::vector<T>& actual,
                                 std::span<const double> expected) {
  return Within(Tolerance<Input>(op), ToDouble(actual), expected);
}

}  // namespace sluice::kernels
