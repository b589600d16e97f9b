#include "kernels/cuda/row_reduce.h"

#include <limits>

#include "tests/kernels/cuda/op_test.h"

namespace sluice::kernels::cuda {
namespace {

class RowReduceTest : public OpTest {
 protected:
  static constexpr int32_t kMaxRows = 9, kMaxN = 700;

  // Runs one capture of `op` over 100 sizes; check(row, value, index) checks each result.
  template <typename Check>
  void OverSizes(void (*op)(Stream&, const RowReduceArgs&), bool indices, Check check) {
    auto* sizes = lab_.Room<RowReduceSizes>(1);
    auto* x = lab_.Room<float>(kMaxRows * kMaxN);
    const RowReduceArgs args = {
        .x = x,
        .row_stride = kMaxN,
        .sizes = sizes,
        .max_rows = kMaxRows,
        .out = lab_.Put(std::vector<float>(kMaxRows)),
        .ids = indices ? lab_.Put(std::vector<int32_t>(kMaxRows)) : nullptr};
    lab_.stream().BeginCapture();
    op(lab_.stream(), args);
    auto graph = lab_.stream().EndCapture().value();
    for (int32_t trial = 0; trial < 100; ++trial) {
      const RowReduceSizes step = {RandomInt(random_, 1, trial % 4 == 0 ? kMaxRows : 2),
                                   RandomInt(random_, 1, trial % 10 == 0 ? kMaxN : 40)};
      ASSERT_TRUE(Accepts(args, step));
      auto values = RandomValues<float>(random_, kMaxRows * kMaxN, 3.0f);
      if (trial % 2 == 0) {  // ties, and zeros of both signs
        for (float& v : values) v = std::round(v) * (trial % 4 == 0 ? 0.0f : 1.0f);
      }
      if (trial % 6 == 1) values[RandomInt(random_, 0, step.n - 1)] = NAN;
      lab_.Write<RowReduceSizes>(sizes, std::vector<RowReduceSizes>{step});
      lab_.Write<float>(x, values);
      lab_.stream().Run(*graph);
      const auto out = lab_.Get(args.out, kMaxRows);
      const auto ids = indices ? lab_.Get(args.ids, kMaxRows) : std::vector<int32_t>(kMaxRows);
      for (int32_t r = 0; r < step.rows; ++r) {
        SCOPED_TRACE(testing::Message() << "row " << r << " of " << step.n << ", seed " << kSeed);
        check(std::span<const float>(values).subspan(r * kMaxN, step.n), out[r], ids[r]);
      }
    }
    EXPECT_EQ(lab_.device().captures(), 1);
  }
};

TEST_F(RowReduceTest, MaxFindsTheFirstOfTheLargestOrTheFirstNaN) {
  OverSizes(&RowMax, true, [](std::span<const float> row, float value, int32_t index) {
    size_t expected = 0;
    for (size_t i = 1; i < row.size() && !std::isnan(row[expected]); ++i) {
      if (std::isnan(row[i]) || row[i] > row[expected]) expected = i;
    }
    EXPECT_EQ(index, static_cast<int32_t>(expected));
    EXPECT_TRUE(value == row[expected] || (std::isnan(value) && std::isnan(row[expected])));
  });
}

TEST_F(RowReduceTest, NormIsTheRootOfTheSumOfSquares) {
  OverSizes(&RowNorm, false, [](std::span<const float> row, float value, int32_t) {
    double sum = 0;
    for (float x : row) sum += static_cast<double>(x) * x;
    if (std::isnan(sum)) {
      EXPECT_TRUE(std::isnan(value));
    } else {
      EXPECT_NEAR(value, std::sqrt(sum), 1e-7 * std::sqrt(sum));
    }
  });
}

TEST(RowReduceGuardTest, AcceptsSizesWithinTheCapacity) {
  const RowReduceArgs args = {
      .x = nullptr, .row_stride = 5, .sizes = nullptr, .max_rows = 3, .out = nullptr};
  EXPECT_TRUE(Accepts(args, {0, 1}));
  EXPECT_TRUE(Accepts(args, {3, 5}));
  for (const RowReduceSizes& bad :
       {RowReduceSizes{4, 5}, RowReduceSizes{-1, 5}, RowReduceSizes{3, 6}, RowReduceSizes{3, 0}}) {
    EXPECT_FALSE(Accepts(args, bad));
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
