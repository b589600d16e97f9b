#include "engine/schedule/ladder.h"

#include <random>

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(Ladder, ChoosesTheSmallestThatFits) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<Bucket> buckets;
    Bucket next;
    for (uint64_t n = 1 + random() % 20; n > 0; --n) {
      next.tokens += 1 + static_cast<int32_t>(random() % 50);
      next.sequences += static_cast<int32_t>(random() % 5);
      buckets.push_back(next);
    }
    const Ladder ladder(buckets);
    for (int32_t tokens = 0; tokens <= next.tokens + 1; ++tokens) {
      for (int32_t sequences = 0; sequences <= next.sequences + 1; ++sequences) {
        const Bucket* expected = nullptr;
        for (const Bucket& bucket : buckets) {
          if (!bucket.Fits(tokens, sequences)) continue;
          expected = &bucket;
          break;
        }
        const Bucket* chosen = ladder.Choose(tokens, sequences);
        ASSERT_EQ(chosen == nullptr, expected == nullptr) << tokens << " " << sequences;
        if (chosen != nullptr) {
          ASSERT_EQ(*chosen, *expected);
        }
      }
    }
  }
}

TEST(LadderDeathTest, OutOfOrder) {
  EXPECT_DEATH(Ladder({}), "empty");
  EXPECT_DEATH(Ladder({{.tokens = 8, .sequences = 1}, {.tokens = 8, .sequences = 2}}), "tokens");
  EXPECT_DEATH(Ladder({{.tokens = 8, .sequences = 2}, {.tokens = 9, .sequences = 1}}), "sequences");
}

}  // namespace
}  // namespace sluice
