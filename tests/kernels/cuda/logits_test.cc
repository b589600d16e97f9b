#include "kernels/cuda/logits.h"

#include "tests/kernels/cuda/op_test.h"

namespace sluice::kernels::cuda {
namespace {

using FinishLogitsTest = OpTest;

TEST_F(FinishLogitsTest, CapsAndExcludes) {
  for (const auto& [rows, n, columns, cap] : {std::tuple(1, 1, 1, 0.0f),
                                              {3, 40, 40, 2.5f},
                                              {9, 697, 704, 0.0f},
                                              {3, 9001, 9001, 1.5f},
                                              {2, 8200, 8200, 3.0f},
                                              {3, 4093, 4100, 1.5f}}) {
    SCOPED_TRACE(testing::Message() << rows << " rows of " << n << ", cap " << cap);
    const auto x = RandomValues<float>(random_, rows * columns, 4.0f);
    std::vector<int32_t> begin = {0}, excluded;
    std::vector<float> expected = x;
    for (float& value : expected) value = cap == 0 ? value : cap * std::tanh(value / cap);
    for (int32_t r = 0; r < rows; ++r) {
      for (int32_t id = r; id < n && n > 1; id += 3 + r) {
        excluded.push_back(id);
        expected[static_cast<size_t>(r * columns + id)] = -INFINITY;
      }
      begin.push_back(static_cast<int32_t>(excluded.size()));
    }
    excluded.push_back(0);  // keeps the array from being empty
    float* logits = lab_.Put(x);
    FinishLogits(lab_.stream(), {.logits = logits,
                                 .n = n,
                                 .stride = columns,
                                 .soft_cap = cap,
                                 .excluded = lab_.Put(excluded),
                                 .begin = lab_.Put(begin),
                                 .rows = Live(rows)});
    const auto got = lab_.Get(logits, rows * columns);
    for (int32_t i = 0; i < std::ssize(expected); ++i) {
      if (i % columns >= n) continue;
      if (std::isinf(expected[i])) {
        ASSERT_EQ(got[i], expected[i]) << i;
      } else {
        ASSERT_NEAR(got[i], expected[i], 1e-6) << i;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
