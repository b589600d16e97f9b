#include "engine/schedule/kv_cache.h"

#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/allocation_counter.h"

namespace sluice {
namespace {

using Tokens = std::vector<int32_t>;

// Returns the pages of a sequence that has computed all of `tokens`.
SequencePages Computed(KvCache* cache, const Tokens& tokens, uint64_t root = 0) {
  SequencePages pages;
  pages.root = root;
  cache->Attach(cache->Find(tokens, root, {}), &pages);
  EXPECT_TRUE(cache->Extend(static_cast<int32_t>(tokens.size()), &pages));
  cache->Publish(tokens, static_cast<int32_t>(tokens.size()), &pages);
  return pages;
}

int32_t Found(const KvCache& cache, const Tokens& tokens, uint64_t root = 0) {
  return cache.Find(tokens, root, {}).pages;
}

TEST(KvCache, FindsFullPagesAndLeavesATokenToCompute) {
  KvCache cache(8, 2, true);
  SequencePages first = Computed(&cache, {1, 2, 3, 4, 5});
  EXPECT_EQ(Found(cache, {1, 2, 3, 4, 5}), 2);
  EXPECT_EQ(Found(cache, {1, 2, 3, 4, 9}), 2);
  EXPECT_EQ(Found(cache, {1, 2, 3, 4}), 1);
  EXPECT_EQ(Found(cache, {1, 2, 3, 9, 9}), 1);
  EXPECT_EQ(Found(cache, {1, 9, 3, 4, 5}), 0);
  EXPECT_EQ(Found(cache, {3, 4, 5}), 0);  // the same tokens at other positions
  EXPECT_EQ(Found(cache, {1, 2}), 0);
  EXPECT_EQ(Found(cache, {}), 0);
  EXPECT_EQ(Found(cache, {1, 2, 3, 4, 5}, /*root=*/1), 0);
  cache.Release(&first);
}

TEST(KvCache, PagesAreSharedUntilTheLastHolderReleasesThem) {
  KvCache cache(8, 2, true);
  SequencePages first = Computed(&cache, {1, 2, 3, 4, 5});
  SequencePages second = Computed(&cache, {1, 2, 3, 4, 6, 7});
  ASSERT_EQ(first.ids.size(), 3u);
  ASSERT_EQ(second.ids.size(), 3u);
  EXPECT_EQ(first.ids[0], second.ids[0]);
  EXPECT_EQ(first.ids[1], second.ids[1]);
  EXPECT_NE(first.ids[2], second.ids[2]);
  EXPECT_EQ(cache.available(), 4);
  cache.Release(&first);
  EXPECT_EQ(cache.available(), 5);
  EXPECT_EQ(cache.idle(), 0);
  cache.Release(&second);
  EXPECT_EQ(cache.available(), 8);
  EXPECT_EQ(cache.idle(), 3);
  cache.Release(&second);
  EXPECT_EQ(cache.available(), 8);
  EXPECT_EQ(cache.Find(Tokens{1, 2, 3, 4, 5}, 0, {}).idle, 2);
}

TEST(KvCache, MergesEqualPages) {
  KvCache cache(8, 2, true);
  SequencePages first, second;
  const Tokens tokens{1, 2, 3, 4, 5};
  for (SequencePages* pages : {&first, &second}) {
    cache.Attach(cache.Find(tokens, 0, {}), pages);
    ASSERT_TRUE(cache.Extend(5, pages));
  }
  cache.Publish(tokens, 3, &first);
  cache.Publish(tokens, 4, &second);
  EXPECT_EQ(first.ids[0], second.ids[0]);
  EXPECT_EQ(cache.available(), 3);
  cache.Publish(tokens, 5, &first);
  EXPECT_EQ(first.ids[1], second.ids[1]);
  EXPECT_EQ(cache.available(), 4);
  cache.Release(&first);
  cache.Release(&second);
  EXPECT_EQ(cache.available(), 8);
}

TEST(KvCache, TakesFreePagesThenTheLongestIdleFromTheEnd) {
  KvCache cache(6, 1, true);
  SequencePages older = Computed(&cache, {1, 2, 3});
  SequencePages newer = Computed(&cache, {4, 5});
  cache.Release(&older);
  cache.Release(&newer);
  SequencePages taking;
  ASSERT_TRUE(cache.Extend(1, &taking));
  EXPECT_EQ(cache.evicted(), 0);
  ASSERT_TRUE(cache.Extend(2, &taking));
  EXPECT_EQ(cache.evicted(), 1);
  EXPECT_EQ(Found(cache, {1, 2, 3, 9}), 2);
  ASSERT_TRUE(cache.Extend(3, &taking));
  EXPECT_EQ(Found(cache, {1, 2, 3, 9}), 1);
  EXPECT_EQ(Found(cache, {4, 5, 9}), 2);
  EXPECT_FALSE(cache.Extend(7, &taking));
  EXPECT_EQ(taking.ids.size(), 3u);
  ASSERT_TRUE(cache.Extend(6, &taking));
  EXPECT_EQ(cache.available(), 0);
  EXPECT_EQ(Found(cache, {4, 5, 9}), 0);
  cache.Release(&taking);
  EXPECT_EQ(cache.idle(), 0);
}

TEST(KvCache, AReusedPrefixIsNoLongerTheLongestIdle) {
  KvCache cache(4, 1, true);
  SequencePages older = Computed(&cache, {1, 2});
  SequencePages newer = Computed(&cache, {3, 4});
  cache.Release(&older);
  cache.Release(&newer);
  SequencePages again;
  cache.Attach(cache.Find(Tokens{1, 2, 9}, 0, {}), &again);
  cache.Release(&again);
  SequencePages taking;
  ASSERT_TRUE(cache.Extend(2, &taking));
  EXPECT_EQ(Found(cache, {1, 2, 9}), 2);
  EXPECT_EQ(Found(cache, {3, 4, 9}), 0);
}

TEST(KvCache, WithoutReuseNothingIsFound) {
  KvCache cache(4, 2, false);
  SequencePages pages = Computed(&cache, {1, 2, 3, 4, 5});
  EXPECT_EQ(pages.published, 0);
  EXPECT_EQ(Found(cache, {1, 2, 3, 4, 5}), 0);
  cache.Release(&pages);
  EXPECT_EQ(cache.available(), 4);
  EXPECT_EQ(cache.idle(), 0);
}

// The shared tokens end within the second page; the first sequence continues to fill this page.
TEST(KvCache, ATailIsCopiedFromItsPage) {
  KvCache cache(6, 4, true);
  const Tokens tokens{1, 2, 3, 4, 5, 6, 7, 8, 9}, other{1, 2, 3, 4, 5, 6, 0};
  SequencePages first;
  first.shared = 6;
  ASSERT_TRUE(cache.Extend(9, &first));
  cache.Publish(tokens, 5, &first);
  EXPECT_EQ(cache.Published(first), 4);
  EXPECT_EQ(cache.TokensOf(cache.Find(other, 0, {}, 6)), 4);
  cache.Publish(tokens, 6, &first);
  EXPECT_EQ(cache.Published(first), 6);
  cache.Publish(tokens, 9, &first);
  EXPECT_EQ(cache.Published(first), 8);

  const KvCache::Prefix found = cache.Find(other, 0, {}, 6);
  EXPECT_EQ(cache.TokensOf(found), 6);
  EXPECT_EQ(cache.TokensOf(cache.Find(other, 0, {}, 5)), 4) << "no sequence shares five tokens";
  EXPECT_EQ(cache.TokensOf(cache.Find(Tokens{1, 2, 3, 4, 5, 6}, 0, {}, 6)), 4)
      << "one token must be left to compute";
  SequencePages second;
  cache.Attach(found, &second);
  EXPECT_EQ(second.copied_from, first.ids[1]);
  ASSERT_TRUE(cache.Extend(7, &second));
  EXPECT_NE(second.ids[1], first.ids[1]);
  cache.Release(&first);
  EXPECT_EQ(cache.idle(), 0) << "the full page of the first, and the one that is copied, are held";
  cache.Copied(&second);
  EXPECT_EQ(cache.idle(), 1);
  cache.Release(&second);
  EXPECT_EQ(cache.available(), 6);
}

TEST(KvCache, AllocatesNothing) {
  constexpr int32_t kPages = 112;  // an index with exactly this capacity has no room to clean up
  constexpr size_t kSequences = 12;
  std::mt19937_64 random(1);
  KvCache cache(kPages, 4, true);
  std::vector<Tokens> tokens(kSequences, Tokens(64));
  std::vector<SequencePages> pages(kSequences);
  for (SequencePages& sequence : pages) sequence.ids.reserve(16);
  const int64_t before = Allocations();
  for (int round = 0; round < 2000; ++round) {
    const size_t i = random() % kSequences;
    cache.Release(&pages[i]);
    for (int32_t& token : tokens[i]) token = static_cast<int32_t>(random() % 1000);
    cache.Attach(cache.Find(tokens[i], 0, {}), &pages[i]);
    if (cache.Extend(64, &pages[i])) cache.Publish(tokens[i], 64, &pages[i]);
  }
  EXPECT_EQ(Allocations() - before, 0);
  EXPECT_GT(cache.evicted(), 1000);
}

}  // namespace
}  // namespace sluice
