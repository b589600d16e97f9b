#include "base/work_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace sluice {
namespace {

constexpr int64_t kFree = WorkMemoryAccount::kFreeBytes;

absl::Status Refusal(int64_t bytes) { return absl::ResourceExhaustedError(std::to_string(bytes)); }

TEST(WorkMemoryTest, WithoutAnAccountNothingIsLimited) {
  WorkMemory memory;
  EXPECT_TRUE(memory.Hold(int64_t{1} << 60).ok());
}

TEST(WorkMemoryTest, TheFirstBytesAreFree) {
  MemoryBudget budget(100);
  const WorkMemoryAccount account(&budget, "a", Refusal);
  WorkMemory memory;
  EXPECT_TRUE(memory.Hold(kFree).ok());
  EXPECT_EQ(budget.used(), 0);
  EXPECT_EQ(memory.Hold(kFree + 200), Refusal(200));
  EXPECT_EQ(memory.bytes(), kFree) << "a refusal changes nothing";
  EXPECT_TRUE(memory.Hold(kFree + 50).ok());
  EXPECT_EQ(budget.used(), 50);
}

TEST(WorkMemoryTest, TheInnermostAccountCounts) {
  MemoryBudget outer(1000), inner(1000);
  const WorkMemoryAccount of_outer(&outer, "a", Refusal);
  {
    const WorkMemoryAccount of_inner(&inner, "a", Refusal);
    WorkMemory memory;
    ASSERT_TRUE(memory.Hold(kFree + 1).ok());
    EXPECT_EQ(inner.used(), 1);
  }
  EXPECT_EQ(inner.used(), 0);
  WorkMemory memory;
  ASSERT_TRUE(memory.Hold(kFree + 2).ok());
  EXPECT_EQ(outer.used(), 2);
}

// The budget has what the objects together had at most, until the account ends.
TEST(WorkMemoryTest, TheBudgetHasTheLargestSumOfTheObjects) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 100; ++round) {
    const int64_t limit = 1 + static_cast<int64_t>(random() % 2000);
    MemoryBudget budget(limit);
    {
      const WorkMemoryAccount account(&budget, "a", Refusal);
      WorkMemory base;
      ASSERT_TRUE(base.Hold(kFree).ok());
      std::vector<WorkMemory> objects(4);
      int64_t most = 0;
      for (int step = 0; step < 50; ++step) {
        WorkMemory& object = objects[random() % objects.size()];
        if (random() % 4 == 0) {
          object = std::move(objects[random() % objects.size()]);
        } else {
          const int64_t wanted = static_cast<int64_t>(random() % 1000);
          int64_t sum = wanted - object.bytes();
          for (const WorkMemory& each : objects) sum += each.bytes();
          // As in FairShare, the owner may take more while as much as it has is left.
          const bool fits = wanted <= object.bytes() || sum <= most || most + sum <= limit;
          ASSERT_EQ(object.Hold(wanted).ok(), fits) << sum << " of " << limit;
          if (fits) most = std::max(most, sum);
        }
        ASSERT_EQ(budget.used(), most);
      }
    }
    EXPECT_EQ(budget.used(), 0);
  }
}

}  // namespace
}  // namespace sluice
