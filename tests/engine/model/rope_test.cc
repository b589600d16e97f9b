#include "engine/model/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace sluice {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

// The range would end at 10.4, which is wider than the features: it ends at the last one, 7. It
// begins at 1.5, and so at 1.
TEST(RopeFrequencies, TheRangeOfYarnEndsWithTheFeatures) {
  RopeConfig rope{.theta = 100};
  rope.yarn = {.factor = 4,
               .beta_fast = 28200,
               .beta_slow = 1,
               .original_max_positions = 1000000,
               .truncate = true};
  const auto divided = [](int i, double share) {
    return DoubleEq(std::pow(100, -2.0 * i / 8) * (1 - share + share / 4));
  };
  EXPECT_THAT(RopeFrequencies(rope, 8),
              ElementsAre(divided(0, 0), divided(1, 0), divided(2, 1.0 / 6), divided(3, 2.0 / 6)));
}

}  // namespace
}  // namespace sluice
