// Tests of the invariance checker itself. It must catch the faults that it is made for.
#include "tests/support/invariance.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr int kK = 300;

float Value(int64_t i) { return static_cast<float>((i * 7919) % 1000) / 999.0f - 0.5f; }

// Sums in `parts` interleaved partial sums.
float Sum(int32_t row, int parts) {
  float sums[4] = {};
  for (int i = 0; i < kK; ++i) sums[i % parts] += Value(int64_t{row} * kK + i);
  float total = 0;
  for (int p = 0; p < parts; ++p) total += sums[p];
  return total;
}

TEST(InvarianceTest, PassesAnOpThatTreatsEveryRowTheSame) {
  EXPECT_TRUE(RowsAreInvariant([](std::span<const int32_t> rows) {
    std::vector<float> out;
    for (int32_t row : rows) out.push_back(Sum(row, 4));
    return out;
  }));
}

TEST(InvarianceTest, CatchesASumWhoseOrderDependsOnTheNumberOfRows) {
  const testing::AssertionResult result = RowsAreInvariant([](std::span<const int32_t> rows) {
    std::vector<float> out;
    for (int32_t row : rows) out.push_back(Sum(row, rows.size() >= 32 ? 4 : 1));
    return out;
  });
  EXPECT_FALSE(result);
  EXPECT_NE(std::string(result.message()).find("batch of 32"), std::string::npos)
      << result.message();
}

TEST(InvarianceTest, CatchesATailRowThatTakesAnotherPath) {
  EXPECT_FALSE(RowsAreInvariant([](std::span<const int32_t> rows) {
    std::vector<float> out;
    for (size_t i = 0; i < rows.size(); ++i) {
      const bool tail = i >= rows.size() / 8 * 8 && rows.size() > 8;
      out.push_back(Sum(rows[i], tail ? 2 : 4));
    }
    return out;
  }));
}

TEST(InvarianceTest, CatchesAResultOfTheWrongSize) {
  EXPECT_FALSE(RowsAreInvariant([](std::span<const int32_t> rows) {
    return std::vector<float>(rows.size() + (rows.size() > 3 ? 1 : 0));
  }));
}

}  // namespace
}  // namespace sluice
