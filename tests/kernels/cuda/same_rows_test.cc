#include "kernels/cuda/same_rows.h"

#include <bit>
#include <limits>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/op_test.h"

namespace sluice::kernels::cuda {
namespace {

template <typename T>
class SameRowsTest : public OpTest {};
TYPED_TEST_SUITE(SameRowsTest, DTypes);

// Some widths allow accesses of 16 bytes, others do not. One bit of one element differs, at any
// column of any row.
TYPED_TEST(SameRowsTest, FindsEachRowWithAnotherBitAndNoOther) {
  using T = TypeParam;
  using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;
  constexpr int32_t kRows = 37;
  for (const int32_t width : {1, 33, 264, 1032}) {
    SCOPED_TRACE(testing::Message() << width << " columns, seed " << this->kSeed);
    const auto expected = RandomValues<T>(this->random_, kRows * width);
    std::vector<int32_t> places(kRows);
    std::vector<T> values;
    std::vector<int32_t> differing;
    for (int32_t& place : places) {
      place = static_cast<int32_t>(this->random_() % kRows);
      const auto from = expected.begin() + place * width;
      values.insert(values.end(), from, from + width);
      differing.push_back(static_cast<int32_t>(this->random_() % 2));
      if (differing.back() == 0) continue;
      T& value = *(values.end() - 1 - static_cast<int64_t>(this->random_() % width));
      value = std::bit_cast<T>(static_cast<Bits>(std::bit_cast<Bits>(value) ^ 1));
    }
    int32_t* const counts = this->lab_.Put(std::vector<int32_t>(kRows, 0));
    for (int32_t run = 1; run <= 2; ++run) {
      SameRows<T>(this->lab_.stream(), {.values = this->lab_.Put(values),
                                        .expected = this->lab_.Put(expected),
                                        .places = this->lab_.Put(places),
                                        .rows = kRows,
                                        .width = width,
                                        .differing = counts});
      for (int32_t r = 0; r < kRows; ++r) {
        EXPECT_EQ(this->lab_.Get(counts, kRows)[r], run * differing[r]) << r;
      }
    }
    this->lab_.Clear();
  }
}

TYPED_TEST(SameRowsTest, AllNaNsAreEqualAndZerosAreNot) {
  using T = TypeParam;
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const std::vector<T> expected = {Narrow<T>(kNaN), Narrow<T>(0.0f), Narrow<T>(1.0f)};
  const std::vector<T> values = {Narrow<T>(-kNaN), Narrow<T>(-0.0f), Narrow<T>(kNaN)};
  int32_t* const counts = this->lab_.Put(std::vector<int32_t>(3, 0));
  SameRows<T>(this->lab_.stream(), {.values = this->lab_.Put(values),
                                    .expected = this->lab_.Put(expected),
                                    .places = this->lab_.template Put<int32_t>({0, 1, 2}),
                                    .rows = 3,
                                    .width = 1,
                                    .differing = counts});
  EXPECT_EQ(this->lab_.Get(counts, 3), (std::vector<int32_t>{0, 1, 1}));
}

}  // namespace
}  // namespace sluice::kernels::cuda
