// Shared by the tests of the CUDA kernels: dtypes, random data and the table of tolerances.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/rows.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/support/device_lab.h"

namespace sluice::kernels::cuda {

using DTypes = testing::Types<float, BFloat16>;

template <typename T>
std::vector<T> RandomValues(std::mt19937_64& random, int64_t n, float scale = 1.0f) {
  std::uniform_real_distribution<float> uniform(-scale, scale);
  std::vector<T> values(static_cast<size_t>(n));
  for (T& value : values) value = Narrow<T>(uniform(random));
  return values;
}

// Returns a random number in [low, high].
inline int32_t RandomInt(std::mt19937_64& random, int32_t low, int32_t high) {
  return std::uniform_int_distribution<int32_t>(low, high)(random);
}

template <typename Range>
std::vector<double> ToDouble(const Range& values) {
  std::vector<double> out;
  for (const auto& value : values) out.push_back(Widen(value));
  return out;
}

// The largest errors against the reference in double on the same inputs, relative to the largest
// value of the tensor (or 1, if that is larger), for inputs of dtype T. bfloat16 rounds results to
// 8 bits, and kAttention also the probabilities.
enum class Op { kRowWise, kProjection, kAttention, kDiagnostics };
template <typename T>
double Tolerance(Op op) {
  const bool rounded = std::is_same_v<T, BFloat16>;
  switch (op) {
    case Op::kRowWise:
      return rounded ? 4e-3 : 1e-6;
    case Op::kProjection:
      return rounded ? 4e-3 : 4e-6;
    case Op::kAttention:
      return rounded ? 8e-3 : 4e-6;
    case Op::kDiagnostics:
      return rounded ? 8e-3 : 1e-5;
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
                                 const std::vector<double>& expected) {
  return Within(Tolerance<Input>(op), ToDouble(actual), expected);
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// A device, a seed that differs between tests but not between runs, and the live rows of a step
// that is smaller than its bucket.
class OpTest : public testing::Test {
 protected:
  OpTest() { RecordProperty("seed", static_cast<int>(kSeed)); }

  static constexpr uint64_t kSeed = 20261121;
  std::mt19937_64 random_{kSeed};
  DeviceLab lab_{MakeDeviceUnderTest(kSeed)};

  LiveRows Live(int32_t count, int32_t spare = 3) {
    return {lab_.Put<int32_t>({count}), count + spare};
  }
};

}  // namespace sluice::kernels::cuda
