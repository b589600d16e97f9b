// Shared by the tests of products with quantised rows.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/quantized_rows.h"
#include "tests/kernels/common/int8_bodies.h"
#include "tests/kernels/cpu/op_test.h"
#include "tests/support/invariance.h"

namespace sluice::kernels {

// Quantised rows with their own memory. Memory outside the rows has all bits set.
class Rows {
 public:
  Rows(const Context& context, std::span<const float> x, int64_t rows, int64_t k, bool sums = false,
       const float* factors = nullptr)
      : memory_(static_cast<std::byte*>(
            AllocateMemory(QuantizedRows::Bytes(context.profile, rows, k, sums)))) {
    std::memset(memory_.get(), 0xFF, QuantizedRows::Bytes(context.profile, rows, k, sums));
    rows_ = QuantizedRows(context.profile, rows, k, sums, memory_.get());
    rows_.MultiplyBy(factors);
    QuantizeRows(context, x.data(), k, rows, rows_);
  }
  const QuantizedRows& rows() const { return rows_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  QuantizedRows rows_;
};

inline uint64_t Seed() {
  static const uint64_t seed = std::random_device()();
  return seed;
}

class QuantizedTest : public OpTest {
 protected:
  QuantizedTest() : random_(Seed()) { RecordProperty("seed", std::to_string(Seed())); }
  testing::Message Trace() const { return testing::Message() << "seed " << Seed(); }
  std::mt19937_64 random_;
};

struct Shape {
  int64_t rows, k, n;
};

// In kernels_wide_test also the profile of AVX2, whose unit is emulated there as well.
inline std::vector<Profile> QuantizedProfiles() {
  std::vector<Profile> profiles = SupportedProfiles();
#ifdef SLUICE_AVX512_BY_AVX2
  if (ProfileSupported(Profile::kAvx2F32)) profiles.push_back(Profile::kAvx2F32);
#endif
  return profiles;
}

// Returns shapes around the sizes of tiles, panels and paddings, a shape whose rows are multiplied
// in several parts by every unit, and random shapes.
inline std::vector<Shape> Shapes(std::mt19937_64& random) {
  std::vector<Shape> shapes = {{1, 1, 1},     {3, 5, 300},  {33, 64, 32},  {40, 63, 31},
                               {1, 96, 300},  {31, 65, 33}, {17, 384, 70}, {5, 4099, 9},
                               {2, 65536, 3}, {70, 8200, 3}};
  for (int i = 0; i < 12; ++i) {
    shapes.push_back(
        {RandomInt(random, 1, 70), RandomInt(random, 1, 700), RandomInt(random, 1, 200)});
  }
  return shapes;
}

// Checks a product with several matrices bit by bit. In `product(row, column)`, columns are counted
// over all matrices; `bias` has a value for each of them. Rows in no group must stay unchanged.
template <typename Product>
void CheckGroups(const Context& context, std::mt19937_64& random, const PackedWeights& packed,
                 const std::vector<float>& bias, bool sums, const Product& product) {
  const int64_t k = packed.k(), n = packed.n();
  std::vector<RowGroup> groups;
  int32_t rows = 1;
  for (int32_t position = 0; position < packed.matrices(); position += 2) {
    groups.push_back({position, rows, static_cast<int32_t>(RandomInt(random, 0, 60))});
    rows += groups.back().count + 1;
  }
  const std::vector<float> x = RandomRows(random, rows, k);
  const Rows quantized(context, x, rows, k, sums);
  std::vector<float> out(rows * n, kPoison);
  GroupedGemm(context, packed, groups,
              {nullptr, 0, bias.data(), n, out.data(), n, false, quantized.rows()});
  const std::vector<Quantized> expected = QuantizeEach(x, k);
  std::vector<bool> written(rows, false);
  for (const RowGroup& group : groups) {
    for (int32_t r = group.first_row; r < group.first_row + group.count; ++r) {
      written[r] = true;
      for (int64_t c = 0; c < n; ++c) {
        const int64_t column = group.matrix * n + c;
        ASSERT_TRUE(SameBits(out[r * n + c], product(expected[r], column) + bias[column]))
            << "row " << r << " column " << c;
      }
    }
  }
  for (int32_t r = 0; r < rows; ++r) EXPECT_TRUE(written[r] || std::isnan(out[r * n])) << r;
}

// Checks that rows have the same bits by themselves and in any batch, with one and two threads.
inline void CheckInvariance(const Context& one, const Context& two, std::mt19937_64& random,
                            const PackedWeights& packed, int64_t all, bool sums) {
  const int64_t k = packed.k(), n = packed.n();
  const std::vector<float> x = RandomRows(random, all, k);
  bool second = false;
  const RowsOp op = [&](std::span<const int32_t> rows) {
    std::vector<float> in, out(rows.size() * n, 0.25f);
    for (const int32_t row : rows) in.insert(in.end(), &x[row * k], &x[row * k] + k);
    const Context& context = (second = !second) ? two : one;
    const Rows quantized(context, in, std::ssize(rows), k, sums);
    Gemm(context, packed, std::ssize(rows),
         {nullptr, 0, nullptr, 0, out.data(), n, true, quantized.rows()});
    return out;
  };
  EXPECT_TRUE(RowsAreInvariant(op)) << k << " x " << n;
}

}  // namespace sluice::kernels

#define SLUICE_EVERY_UNIT(suite)                                                    \
  INSTANTIATE_TEST_SUITE_P(Profiles, suite,                                         \
                           testing::ValuesIn(sluice::kernels::QuantizedProfiles()), \
                           sluice::kernels::ProfileTestName)
