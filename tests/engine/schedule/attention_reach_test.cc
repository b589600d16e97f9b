#include "engine/schedule/attention_reach.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace sluice {
namespace {

TEST(AttentionReachTest, ContextIsTheMeanOfReadPositionsOverLayers) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 500; ++trial) {
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
    const int64_t layers = 1 + below(6), windowed = below(layers + 1);
    const int64_t window = 1 + below(20), first = below(30), count = 1 + below(30);
    int64_t all = 0, near = 0;
    for (int64_t p = first; p < first + count; ++p) {
      all += p + 1;
      near += std::min(p + 1, window);
    }
    const AttentionReach reach = {
        .window = static_cast<int32_t>(window),
        .windowed = static_cast<double>(windowed) / static_cast<double>(layers)};
    const double mean = static_cast<double>(windowed * near + (layers - windowed) * all) /
                        static_cast<double>(layers);
    EXPECT_NEAR(static_cast<double>(reach.ContextOf(first, count)), mean, 1.001);
    EXPECT_EQ(AttentionReach{}.ContextOf(first, count), all);
  }
}

}  // namespace
}  // namespace sluice
