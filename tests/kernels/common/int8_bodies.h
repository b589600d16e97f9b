// The tests of products in int8 that every backend runs. The bits must equal the reference in
// integers.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "kernels/reference/int8.h"
#include "tests/kernels/common/values.h"

namespace sluice::kernels {

using reference::Quantized;

// Floats whose magnitudes differ by orders from row to row. Some are the largest of their row or
// close to it, so that the sums are near their limits.
template <typename T = float>
std::vector<T> RandomRows(std::mt19937_64& random, int64_t rows, int64_t k) {
  std::vector<T> x;
  for (int64_t r = 0; r < rows; ++r) {
    const float scale = std::ldexp(1.0f, static_cast<int>(RandomInt(random, -20, 20)));
    for (float value : RandomValues<float>(random, k)) {
      if (random() % 4 == 0) value = value < 0 ? -1.0f : 1.0f;
      x.push_back(cuda::Narrow<T>(value * scale));
    }
  }
  return x;
}

template <typename T>
std::vector<Quantized> QuantizeEach(const std::vector<T>& x, int64_t k) {
  std::vector<float> values;
  for (const T& value : x) values.push_back(cuda::Widen(value));
  std::vector<Quantized> rows;
  for (int64_t i = 0; i < std::ssize(values); i += k) {
    rows.push_back(reference::Quantize(std::span(values).subspan(i, k)));
  }
  return rows;
}

inline std::string Bits(float value) {
  return testing::PrintToString(value) + " " +
         testing::PrintToString(std::bit_cast<uint32_t>(value));
}

inline bool SameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b);
}

// Rows of x times a matrix. Its columns are [n, k] here: floats that the backend quantises, or, if
// `scales` [n] are not empty, values that are stored in int8.
template <typename T>
struct Int8Inputs {
  int64_t rows, k, n;
  std::vector<T> x;
  std::vector<float> columns = {};
  std::vector<int8_t> stored = {};
  std::vector<float> scales = {};
  std::vector<T> bias = {};    // [n], or empty
  std::vector<T> before = {};  // [rows, n], the product is added to it; or empty
};

// run(inputs) computes the product, [rows, n].
template <typename T, typename Run>
void ExpectInt8EqualsReference(const Run& run, const Int8Inputs<T>& in) {
  SCOPED_TRACE(testing::Message() << in.rows << " x " << in.k << " x " << in.n);
  const std::vector<Quantized> rows = QuantizeEach(in.x, in.k);
  std::vector<Quantized> columns = QuantizeEach(in.columns, in.k);
  for (size_t c = 0; c < in.scales.size(); ++c) {
    const auto first = in.stored.begin() + static_cast<int64_t>(c) * in.k;
    columns.push_back({{first, first + in.k}, in.scales[c]});
  }
  const std::vector<T> out = run(in);
  ASSERT_EQ(std::ssize(out), in.rows * in.n);
  for (int64_t r = 0; r < in.rows; ++r) {
    for (int64_t c = 0; c < in.n; ++c) {
      float expected = reference::Int8Product(rows[r], columns[c]);
      if (!in.bias.empty()) expected = expected + cuda::Widen(in.bias[c]);
      if (!in.before.empty()) expected = cuda::Widen(in.before[r * in.n + c]) + expected;
      expected = cuda::Widen(cuda::Narrow<T>(expected));
      const float got = cuda::Widen(out[r * in.n + c]);
      ASSERT_TRUE(SameBits(got, expected))
          << "row " << r << " column " << c << ": " << Bits(got) << ", not " << Bits(expected);
    }
  }
}

template <typename T>
Int8Inputs<T> RandomInt8Inputs(std::mt19937_64& random, int64_t rows, int64_t k, int64_t n) {
  Int8Inputs<T> in = {.rows = rows,
                      .k = k,
                      .n = n,
                      .x = RandomRows<T>(random, rows, k),
                      .columns = RandomRows<float>(random, n, k)};
  if (random() % 2 != 0) in.bias = RandomValues<T>(random, n);
  if (random() % 2 != 0) in.before = RandomValues<T>(random, rows * n);
  return in;
}

// The widest layer of a model, with the largest possible sums.
template <typename T, typename Run>
void ExpectInt8SumsDoNotSaturate(const Run& run) {
  constexpr int64_t kDepth = 65536, kColumns = 5;
  Int8Inputs<T> in = {.rows = 2, .k = kDepth, .n = kColumns, .x = {}};
  for (int64_t i = 0; i < 2 * kDepth; ++i) in.x.push_back(cuda::Narrow<T>(i < kDepth ? 1 : -1));
  for (int64_t c = 0; c < kColumns; ++c) {
    in.columns.insert(in.columns.end(), kDepth, c % 2 == 0 ? -3.0f : 3.0f);
  }
  ExpectInt8EqualsReference(run, in);
  const float sum = 127.0f * 127.0f * kDepth * (1.0f / 127.0f) * (3.0f / 127.0f);
  const std::vector<T> out = run(in);
  for (int64_t c = 0; c < kColumns; ++c) {
    const float expected = c % 2 == 0 ? -sum : sum;
    const float error = sum * (sizeof(T) == 2 ? 0x1p-8f : 1e-6f);
    EXPECT_NEAR(cuda::Widen(out[c]), expected, error);
    EXPECT_NEAR(cuda::Widen(out[kColumns + c]), -expected, error);
  }
}

template <typename T, typename Run>
void ExpectStoredInt8KeepsItsScales(const Run& run, std::mt19937_64& random) {
  constexpr int64_t kRows = 9, kDepth = 130, kColumns = 37;
  Int8Inputs<T> in = {.rows = kRows,
                      .k = kDepth,
                      .n = kColumns,
                      .x = RandomRows<T>(random, kRows, kDepth),
                      .stored = std::vector<int8_t>(kColumns * kDepth),
                      .scales = RandomValues<float>(random, kColumns)};
  for (int8_t& value : in.stored) value = static_cast<int8_t>(random());  // -128 among them
  ExpectInt8EqualsReference(run, in);
}

template <typename T, typename Run>
void ExpectInt8KeepsWhatIsNotFiniteApart(const Run& run, std::mt19937_64& random) {
  constexpr int64_t kDepth = 66, kColumns = 35, kRows = 20;
  Int8Inputs<T> in = {.rows = kRows,
                      .k = kDepth,
                      .n = kColumns,
                      .x = RandomValues<T>(random, kRows * kDepth),
                      .columns = RandomValues<float>(random, kColumns * kDepth)};
  in.x[3 * kDepth + 65] = cuda::Narrow<T>(kPoison);
  in.x[4 * kDepth] = cuda::Narrow<T>(-kInfinity);
  in.columns[7 * kDepth + 1] = kInfinity;
  std::fill_n(&in.x[5 * kDepth], kDepth, cuda::Narrow<T>(0.0f));
  std::fill_n(&in.x[6 * kDepth], kDepth, cuda::Narrow<T>(0x1p-130f));  // counts as zeros
  ExpectInt8EqualsReference(run, in);
  const std::vector<T> out = run(in);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kColumns; ++c) {
      const float y = cuda::Widen(out[r * kColumns + c]);
      EXPECT_EQ(std::isnan(y), r == 3 || r == 4 || c == 7) << r << " " << c;
      EXPECT_TRUE((r != 5 && r != 6) || c == 7 || y == 0) << r << " " << c;
    }
  }
}

}  // namespace sluice::kernels
