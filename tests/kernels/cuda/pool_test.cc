#include "kernels/cuda/pool.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/op_test.h"

namespace sluice::kernels::cuda {
namespace {

template <typename T>
class PoolTest : public OpTest {};
TYPED_TEST_SUITE(PoolTest, DTypes);

// The rows of a sequence are in any order. Some sums have a multiple of the rows that may be read
// at a time.
TYPED_TEST(PoolTest, SumsAreChainsOfAdditionsInTheOrderOfTheirRows) {
  using T = TypeParam;
  constexpr int32_t kRows = 60;
  for (const int32_t dim : {1, 31, 70, 600}) {
    SCOPED_TRACE(testing::Message() << "dim " << dim << ", seed " << this->kSeed);
    auto x = RandomValues<T>(this->random_, kRows * dim);
    x[dim - 1] = Narrow<T>(1e30f);  // so that the order matters
    std::vector<int32_t> ids(kRows);
    for (int32_t i = 0; i < kRows; ++i) ids[i] = i;
    std::shuffle(ids.begin(), ids.end(), this->random_);
    const std::vector<RowRange> ranges = {{0, kRows}, {7, 1}, {3, 8}, {20, 17}, {59, 1}};
    const auto sums = static_cast<int32_t>(ranges.size());
    double* const out = this->lab_.template Room<double>(sums * dim);
    SumRows<T>(this->lab_.stream(), {.x = this->lab_.Put(x),
                                     .dim = dim,
                                     .ids = this->lab_.Put(ids),
                                     .ranges = this->lab_.Put(ranges),
                                     .rows = this->Live(sums),
                                     .out = out});
    std::vector<double> expected(sums * dim);
    for (int32_t s = 0; s < sums; ++s) {
      for (int32_t i = 0; i < ranges[s].count; ++i) {
        const T* const row = x.data() + ids[ranges[s].begin + i] * dim;
        for (int32_t j = 0; j < dim; ++j) expected[s * dim + j] += Widen(row[j]);
      }
    }
    EXPECT_TRUE(SameBits(this->lab_.Get(out, sums * dim), expected));
    this->lab_.Clear();
  }
}

// A value that is not finite is detected in any row.
TYPED_TEST(PoolTest, MaximaAreNaNIfAValueIsNotFinite) {
  using T = TypeParam;
  constexpr int32_t kRows = 30, kDim = 33;
  SCOPED_TRACE(this->kSeed);
  auto x = RandomValues<T>(this->random_, kRows * kDim);
  for (int32_t i = 0; i < kRows; ++i) x[i * kDim] = Narrow<T>(-1.0f - static_cast<float>(i));
  x[4 * kDim + 1] = Narrow<T>(-INFINITY);
  x[11 * kDim + 2] = Narrow<T>(INFINITY);
  x[29 * kDim + 3] = Narrow<T>(NAN);
  std::vector<int32_t> ids(kRows);
  std::iota(ids.begin(), ids.end(), 0);
  const std::vector<RowRange> ranges = {{0, -kRows}, {5, -1}, {3, -8}, {0, kRows}};
  const auto count = static_cast<int32_t>(ranges.size());
  double* const out = this->lab_.template Room<double>(count * kDim);
  SumRows<T>(this->lab_.stream(), {.x = this->lab_.Put(x),
                                   .dim = kDim,
                                   .ids = this->lab_.Put(ids),
                                   .ranges = this->lab_.Put(ranges),
                                   .rows = this->Live(count),
                                   .out = out});
  const std::vector<double> got = this->lab_.Get(out, count * kDim);
  for (int32_t s = 0; s < 3; ++s) {
    for (int32_t j = 0; j < kDim; ++j) {
      double most = -INFINITY;
      bool finite = true;
      for (int32_t i = ranges[s].begin; i < ranges[s].begin - ranges[s].count; ++i) {
        const double value = Widen(x[i * kDim + j]);
        finite &= std::isfinite(value);
        most = std::max(most, value);
      }
      EXPECT_EQ(std::isnan(got[s * kDim + j]), !finite) << s << " " << j;
      if (!finite) continue;
      EXPECT_EQ(got[s * kDim + j], most) << s << " " << j;
    }
  }
  EXPECT_EQ(got[0], -1) << "all values of the column are negative";
  EXPECT_LT(got[3 * kDim], -400) << "the last range is summed";
}

}  // namespace
}  // namespace sluice::kernels::cuda
