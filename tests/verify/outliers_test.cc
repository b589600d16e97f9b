#include "verify/outliers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace sluice::verify {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(OutlierChannels, AreTheChannelsWhoseRemovalShrinksTheRowsMost) {
  constexpr uint64_t kSeed = 3;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  constexpr int64_t kRows = 50, kWidth = 20;
  std::vector<float> rows;
  for (int64_t i = 0; i < kRows * kWidth; ++i) {
    rows.push_back(std::uniform_real_distribution<float>(-1, 1)(random));
  }
  for (int64_t r = 0; r < kRows; ++r) {
    float* const row = &rows[r * kWidth];
    row[7] = -10;                 // the largest of every row
    row[2] = r % 2 == 0 ? 5 : 0;  // the second largest in half of the rows
    row[11] = r == 0 ? 50 : 0;    // of one row; its square counts like 25 squares of channel 7
  }
  EXPECT_THAT(OutlierChannels(rows, kWidth, 3), ElementsAre(7, 11, 2));
  EXPECT_THAT(OutlierChannels(rows, kWidth, 1), ElementsAre(7));
  EXPECT_EQ(OutlierChannels(rows, kWidth, kWidth).size(), static_cast<size_t>(kWidth));
}

// Two channels are large in the same rows. Removing only one of them hardly shrinks the rows.
TEST(OutlierChannels, AreTheLargestGainsNotTheLargestValues) {
  std::vector<float> rows;
  for (int r = 0; r < 8; ++r) {
    for (const float value :
         r < 4 ? std::vector<float>{10, -9.9f, 1} : std::vector<float>{0, 1, 6}) {
      rows.push_back(value);
    }
  }
  EXPECT_THAT(OutlierChannels(rows, 3, 1), ElementsAre(2));
  EXPECT_THAT(OutlierChannels(rows, 3, 3), ElementsAre(2, 0, 1));
}

TEST(OutlierChannels, RowsOfZerosHaveNone) {
  EXPECT_THAT(OutlierChannels(std::vector<float>(12, 0.0f), 4, 4), IsEmpty());
}

}  // namespace
}  // namespace sluice::verify
