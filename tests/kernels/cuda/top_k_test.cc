#include "kernels/cuda/top_k.h"

#include <limits>

#include "kernels/reference/sample.h"
#include "tests/kernels/cuda/op_test.h"

namespace sluice::kernels::cuda {
namespace {

class TopKTest : public OpTest {};

// One capture is replayed for 100 different sizes within the bucket.
TEST_F(TopKTest, OneCaptureServesAllSizes) {
  const int32_t max_rows = 3, max_n = 600, max_k = 600;
  auto* sizes = lab_.Room<TopKSizes>(1);
  auto* x = lab_.Room<float>(max_rows * max_n);
  const TopKArgs args = {.x = x,
                         .row_stride = max_n,
                         .sizes = sizes,
                         .max_rows = max_rows,
                         .max_k = max_k,
                         .scratch = lab_.Room<uint64_t>(max_rows * max_k),
                         .values = lab_.Put(std::vector<float>(max_rows * max_k)),
                         .ids = lab_.Put(std::vector<int32_t>(max_rows * max_k))};
  lab_.stream().BeginCapture();
  TopK(lab_.stream(), args);
  auto graph = lab_.stream().EndCapture().value();
  for (int32_t trial = 0; trial < 100; ++trial) {
    const int32_t n = RandomInt(random_, 1, trial % 5 == 0 ? max_n : 50);
    const TopKSizes step = {RandomInt(random_, 1, max_rows), n,
                            trial % 10 == 0 ? n : RandomInt(random_, 1, std::min(n, 20))};
    ASSERT_TRUE(Accepts(args, step));
    auto values = RandomValues<float>(random_, max_rows * max_n, 4.0f);
    for (float& v : values) {
      if (trial % 2 == 0) v = std::round(v);  // many ties
      if (trial % 7 == 0 && v < -3) v = std::numeric_limits<float>::quiet_NaN();
    }
    lab_.Write<TopKSizes>(sizes, std::vector<TopKSizes>{step});
    lab_.Write<float>(x, values);
    lab_.stream().Run(*graph);
    const auto ids = lab_.Get(args.ids, max_rows * max_k);
    const auto largest = lab_.Get(args.values, max_rows * max_k);
    for (int32_t r = 0; r < step.rows; ++r) {
      SCOPED_TRACE(testing::Message()
                   << "row " << r << ", n " << n << ", k " << step.k << ", seed " << kSeed);
      const auto row = std::span(values).subspan(r * max_n, n);
      const auto expected = reference::TopK(ToDouble(row), step.k);
      for (int32_t i = 0; i < step.k; ++i) {
        ASSERT_EQ(ids[r * max_k + i], expected[i]) << "place " << i;
        const float value = largest[r * max_k + i];
        ASSERT_TRUE(value == row[expected[i]] || std::isnan(row[expected[i]]));
      }
    }
  }
  EXPECT_EQ(lab_.device().captures(), 1);
}

TEST(TopKGuardTest, AcceptsSizesWithinTheCapacity) {
  const TopKArgs args = {.x = nullptr,
                         .row_stride = 9,
                         .sizes = nullptr,
                         .max_rows = 2,
                         .max_k = 4,
                         .scratch = nullptr,
                         .values = nullptr,
                         .ids = nullptr};
  EXPECT_TRUE(Accepts(args, {2, 9, 4}));
  EXPECT_TRUE(Accepts(args, {0, 4, 4}));
  for (const TopKSizes& bad : {TopKSizes{3, 9, 4}, TopKSizes{2, 10, 4}, TopKSizes{2, 9, 5},
                               TopKSizes{2, 3, 4}, TopKSizes{2, 9, 0}}) {
    EXPECT_FALSE(Accepts(args, bad));
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
