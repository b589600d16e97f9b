#include "engine/page_allocator.h"

#include <random>
#include <set>

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(PageAllocator, NeverHandsAPageOutTwice) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto pages = static_cast<int32_t>(random() % 40);
    PageAllocator allocator(pages);
    std::vector<std::vector<int32_t>> held;
    std::set<int32_t> in_use;
    for (int step = 0; step < 200; ++step) {
      if (random() % 2 == 0 || held.empty()) {
        std::vector<int32_t> wanted(random() % 10);
        const bool enough = wanted.size() <= static_cast<size_t>(allocator.available());
        ASSERT_EQ(allocator.Allocate(wanted), enough);
        if (!enough) continue;
        for (int32_t page : wanted) {
          ASSERT_TRUE(page >= 0 && page < pages) << page;
          ASSERT_TRUE(in_use.insert(page).second) << page;
        }
        held.push_back(wanted);
      } else {
        std::swap(held[random() % held.size()], held.back());
        for (int32_t page : held.back()) in_use.erase(page);
        allocator.Free(held.back());
        held.pop_back();
      }
      ASSERT_EQ(allocator.available(), pages - static_cast<int32_t>(in_use.size()));
    }
  }
}

}  // namespace
}  // namespace sluice
