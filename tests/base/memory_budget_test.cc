#include "base/memory_budget.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <vector>

namespace sluice {
namespace {

TEST(MemoryBudgetTest, TheLastHolderReturnsTheShareOnce) {
  MemoryBudget budget(100);
  MemoryShare share = budget.Take("a", 40);
  ASSERT_TRUE(share);
  MemoryShare moved = std::move(share);
  EXPECT_EQ(budget.used(), 40);
  moved.Shrink(10);
  moved.Shrink(30);
  EXPECT_EQ(budget.used(), 10) << "a share never grows";
  moved = budget.Take("a", 5);
  EXPECT_EQ(budget.used(), 5);
  moved = MemoryShare();
  EXPECT_EQ(budget.used(), 0);
}

TEST(MemoryBudgetTest, AnOwnerGetsAtMostTheAmountLeftForOthers) {
  MemoryBudget budget(100);
  const MemoryShare a = budget.Take("a", 50);
  ASSERT_TRUE(a);
  EXPECT_FALSE(budget.Take("a", 1));
  const MemoryShare b = budget.Take("b", 50);
  EXPECT_TRUE(b) << "exactly the amount that is left";
  EXPECT_FALSE(budget.Take("c", 1));
  EXPECT_TRUE(MemoryBudget(100).Take("a", 100)) << "the first share may be everything";
  EXPECT_FALSE(MemoryBudget(100).Take("a", 101));
}

TEST(MemoryBudgetTest, SharesMayOutliveTheBudget) {
  MemoryShare share;
  {
    MemoryBudget budget(100);
    share = budget.Take("a", 50);
  }
  EXPECT_TRUE(share);
}

TEST(MemoryBudgetTest, UsedIsTheSumOfTheSharesAndNoOwnerStarvesOthers) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  constexpr int64_t kLimit = 1000;
  MemoryBudget budget(kLimit);
  std::vector<std::pair<int, MemoryShare>> shares;
  std::map<int, int64_t> owned;
  int64_t sum = 0;
  for (int round = 0; round < 20'000; ++round) {
    if (random() % 2 == 0 && !shares.empty()) {
      std::swap(shares[random() % shares.size()], shares.back());
      owned[shares.back().first] -= shares.back().second.bytes();
      sum -= shares.back().second.bytes();
      shares.pop_back();
    } else {
      const int owner = static_cast<int>(random() % 5);
      const int64_t bytes = 1 + static_cast<int64_t>(random() % 200);
      MemoryShare share = budget.Take(std::to_string(owner), bytes);
      ASSERT_EQ(static_cast<bool>(share), sum + owned[owner] + bytes <= kLimit);
      if (!share) continue;
      owned[owner] += bytes;
      sum += bytes;
      shares.emplace_back(owner, std::move(share));
    }
    ASSERT_EQ(budget.used(), sum);
  }
}

}  // namespace
}  // namespace sluice
