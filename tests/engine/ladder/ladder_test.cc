#include "engine/ladder/ladder.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/scheduling.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

const LadderLimits kLimits{.max_tokens = 1000, .max_sequences = 8};

// Compares Choose with a search through the buckets, which are in the documented order.
void ExpectFirstThatFits(const Ladder& ladder, const BatchSize& size) {
  const Bucket* expected = nullptr;
  for (const Bucket& bucket : ladder.buckets()) {
    if (!bucket.Fits(size)) continue;
    expected = &bucket;
    break;
  }
  ASSERT_EQ(ladder.Choose(size), expected)
      << size.tokens << " tokens, " << size.sequences << " sequences, longest " << size.longest;
}

TEST(Ladder, PackedLadderChoosesTheSmallestFittingBucket) {
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
    EXPECT_FALSE(ladder.padded());
    EXPECT_EQ(ladder.max_sequences(), next.sequences);
    for (int32_t tokens = 0; tokens <= next.tokens + 1; ++tokens) {
      for (int32_t sequences = 0; sequences <= next.sequences + 1; ++sequences) {
        ExpectFirstThatFits(ladder,
                            {.tokens = tokens, .sequences = sequences, .longest = tokens + 7});
      }
    }
  }
}

// Returns columns of random widths and rows, each at most as tall as the previous one.
Ladder RandomPaddedLadder(std::mt19937_64& random) {
  std::vector<Bucket> buckets;
  int32_t tallest = 40;
  int32_t positions = 0;
  for (uint64_t columns = 1 + random() % 6; columns > 0; --columns) {
    positions += 1 + static_cast<int32_t>(random() % 20);
    tallest = 1 + static_cast<int32_t>(random() % static_cast<uint64_t>(tallest));
    std::set<int32_t> rows = {tallest};
    for (uint64_t n = random() % 5; n > 0; --n) {
      rows.insert(1 + static_cast<int32_t>(random() % static_cast<uint64_t>(tallest)));
    }
    for (const int32_t sequences : rows) buckets.push_back(Bucket::Padded(sequences, positions));
  }
  return Ladder(std::move(buckets));
}

TEST(Ladder, PaddedLadderChoosesTheShortestBucketOfTheNarrowestColumn) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Ladder ladder = RandomPaddedLadder(random);
    EXPECT_TRUE(ladder.padded());
    for (int32_t longest = 0; longest <= ladder.largest().positions + 1; ++longest) {
      for (int32_t sequences = 0; sequences <= ladder.max_sequences() + 1; ++sequences) {
        ExpectFirstThatFits(
            ladder, {.tokens = longest * sequences, .sequences = sequences, .longest = longest});
      }
    }
  }
}

struct LadderOrderRow {
  const char* name;
  std::vector<Bucket> buckets;
  std::optional<size_t> misplaced = std::nullopt;
};
class LadderOrderTable : public TableTest<LadderOrderRow> {};

TEST_P(LadderOrderTable, ReturnsTheFirstBucketThatIsOutOfOrder) {
  EXPECT_EQ(FirstOutOfOrder(row().buckets), row().misplaced);
}

const LadderOrderRow kLadderOrderRows[] = {
    {.name = "AnEmptyListIsInOrder", .buckets = {}},
    {.name = "TheSameSequencesForMoreTokensAreInOrder",
     .buckets = {{.tokens = 8, .sequences = 2}, {.tokens = 9, .sequences = 2}}},
    {.name = "TheSameTokensTwiceAreNotInOrder",
     .buckets = {{.tokens = 8, .sequences = 1}, {.tokens = 8, .sequences = 2}},
     .misplaced = 1},
    {.name = "FewerSequencesForMoreTokensAreNotInOrder",
     .buckets = {{.tokens = 8, .sequences = 2}, {.tokens = 9, .sequences = 1}},
     .misplaced = 1},
    {.name = "APackedBucketAfterAPaddedOneIsNotInOrder",
     .buckets = {{.tokens = 8, .sequences = 2}, Bucket::Padded(2, 8)},
     .misplaced = 1},
    {.name = "ColumnsInOrderOfWidthAreInOrder",
     .buckets = {Bucket::Padded(1, 4), Bucket::Padded(2, 4), Bucket::Padded(2, 8)}},
    {.name = "FewerRowsInAColumnAreNotInOrder",
     .buckets = {Bucket::Padded(2, 8), Bucket::Padded(1, 8)},
     .misplaced = 1},
    {.name = "TheSameRowsTwiceInAColumnAreNotInOrder",
     .buckets = {Bucket::Padded(2, 8), Bucket::Padded(2, 8)},
     .misplaced = 1},
    {.name = "ANarrowerColumnAfterAWiderOneIsNotInOrder",
     .buckets = {Bucket::Padded(1, 8), Bucket::Padded(1, 4)},
     .misplaced = 1},
    {.name = "AWiderColumnThatIsTallerIsNotInOrder",
     .buckets = {Bucket::Padded(1, 8), Bucket::Padded(2, 9)},
     .misplaced = 1},
    {.name = "TheSecondRowOfAWiderColumnMayBeMisplaced",
     .buckets = {Bucket::Padded(1, 8), Bucket::Padded(1, 9), Bucket::Padded(2, 9)},
     .misplaced = 2},
};
SLUICE_TABLE(LadderOrderTable, kLadderOrderRows);

TEST(LadderDeathTest, EmptyOrUnorderedBucketsBreakAnInvariant) {
  EXPECT_DEATH(Ladder({}), "empty");
  EXPECT_DEATH(Ladder({Bucket::Padded(1, 8), Bucket::Padded(2, 9)}), "FirstOutOfOrder");
}

TEST(LadderDeathTest, LimitsAndCapacitiesAreAtLeastOne) {
  LadderLimits limits = kLimits;
  EXPECT_DEATH(MakePackedLadder({0, 5}, limits), "capacities");
  EXPECT_DEATH(MakePaddedLadder({{0}}, limits), "positions");
  EXPECT_DEATH(MakePaddedLadder({{1001}}, limits), "positions");
  limits.max_sequences = 0;
  EXPECT_DEATH(MakePackedLadder({5}, limits), "max_sequences");
  EXPECT_DEATH(MakePaddedLadder({{5}}, limits), "max_sequences");
}

TEST(LadderDeathTest, LaddersOfOneLayoutAreCompared) {
  const Ladder packed = MakePackedLadder({5}, kLimits), padded = MakePaddedLadder({{5}}, kLimits);
  EXPECT_DEATH(CompareLadders(packed, padded), "padded");
}

TEST(MakePackedLadder, SortsTheSizesAndEndsWithTheMaximum) {
  EXPECT_THAT(
      MakePackedLadder({700, 5, 700, 1000, 4000}, kLimits).buckets(),
      ElementsAre(Bucket{.tokens = 5, .sequences = 5}, Bucket{.tokens = 700, .sequences = 8},
                  Bucket{.tokens = 1000, .sequences = 8}));
  EXPECT_THAT(TokensOf(MakePackedLadder({}, kLimits).buckets()), ElementsAre(1000));
}

TEST(MakePaddedLadder, HasPowersOfTwoOfRowsInEachColumn) {
  const LadderLimits limits{.max_tokens = 24, .max_sequences = 5};
  EXPECT_THAT(MakePaddedLadder({{4, 12}}, limits).buckets(),
              ElementsAre(Bucket::Padded(1, 4), Bucket::Padded(2, 4), Bucket::Padded(4, 4),
                          Bucket::Padded(5, 4), Bucket::Padded(1, 12), Bucket::Padded(2, 12)));
}

TEST(BuildLadder, HasOneColumnForStaticPadding) {
  const LadderLimits limits{.max_tokens = 24, .max_sequences = 5, .max_positions = 6};
  EXPECT_THAT(BuildLadder({}, PolicyKind::kStaticPadded, limits)->buckets(),
              ElementsAre(Bucket::Padded(1, 6), Bucket::Padded(2, 6), Bucket::Padded(4, 6)));
}

// Every strategy chooses columns of the padded layout as it chooses capacities of the packed one.
TEST(BuildLadder, TheStrategyChoosesThePaddedColumns) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto draw = [&](int32_t high) { return 1 + static_cast<int32_t>(random() % high); };
    LadderLimits limits{.max_tokens = draw(5000), .max_sequences = draw(70)};
    limits.max_positions = draw(limits.max_tokens);
    LadderOptions options{.strategy = static_cast<StrategyKind>(random() % 5),
                          .ratio = 1 + draw(30) / 10.0,
                          .min_tokens = draw(100),
                          .max_buckets = draw(30)};
    if (options.strategy == StrategyKind::kFixed) options.fixed_tokens = {limits.max_positions};
    const absl::StatusOr<Ladder> ladder = BuildLadder(options, PolicyKind::kPaddedBuckets, limits);
    ASSERT_TRUE(ladder.ok()) << ladder.status();
    LadderLimits columns = limits;
    columns.max_tokens = limits.max_positions;
    const Ladder packed = *BuildLadder(options, columns);
    std::set<int32_t> widths;
    for (const Bucket& bucket : ladder->buckets()) {
      widths.insert(bucket.positions);
      EXPECT_LE(bucket.tokens, limits.max_tokens);
      EXPECT_LE(bucket.sequences, limits.max_sequences);
    }
    std::set<int32_t> expected;
    for (const Bucket& bucket : packed.buckets()) expected.insert(bucket.tokens);
    EXPECT_EQ(widths, expected);
    EXPECT_LE(std::ssize(widths), options.max_buckets);
    EXPECT_EQ(ladder->largest().positions, limits.max_positions);
  }
}

TEST(CompareLadders, OnlyAddsAndRemovesPaddedBuckets) {
  const LadderLimits limits{.max_tokens = 8, .max_sequences = 2};
  const LadderDiff diff =
      CompareLadders(MakePaddedLadder({{2, 8}}, limits), MakePaddedLadder({{3, 8}}, limits));
  EXPECT_THAT(diff.added, ElementsAre(Bucket::Padded(1, 3), Bucket::Padded(2, 3)));
  EXPECT_THAT(diff.removed, ElementsAre(Bucket::Padded(1, 2), Bucket::Padded(2, 2)));
  EXPECT_TRUE(diff.merged.empty());
  EXPECT_TRUE(diff.split.empty());
}

LadderDiff Compare(std::vector<int32_t> before, std::vector<int32_t> after) {
  return CompareLadders(MakePackedLadder(std::move(before), kLimits),
                        MakePackedLadder(std::move(after), kLimits));
}

struct LadderDiffRow {
  const char* name;
  std::vector<int32_t> before{}, after{}, added{}, removed{}, merged{}, split{};
};
class LadderDiffTable : public TableTest<LadderDiffRow> {};

TEST_P(LadderDiffTable, ClassifiesEachBucket) {
  const LadderDiff diff = Compare(row().before, row().after);
  EXPECT_EQ(TokensOf(diff.added), row().added);
  EXPECT_EQ(TokensOf(diff.removed), row().removed);
  EXPECT_EQ(TokensOf(diff.merged), row().merged);
  EXPECT_EQ(TokensOf(diff.split), row().split);
  EXPECT_EQ(diff.empty(), row().before == row().after);
}

const LadderDiffRow kLadderDiffRows[] = {
    {.name = "EqualLaddersDoNotDiffer", .before = {100, 200}, .after = {100, 200}},
    {.name = "AnAdditionalBucketIsAdded", .before = {100}, .after = {100, 200}, .added = {200}},
    {.name = "AMissingBucketIsRemoved", .before = {100, 200}, .after = {100}, .removed = {200}},
    {.name = "AllMissingBucketsAreRemoved",
     .before = {100, 200, 300},
     .after = {},
     .removed = {100, 200, 300}},
    {.name = "TwoBucketsForOneAreMerged",
     .before = {100, 200},
     .after = {150},
     .added = {150},
     .merged = {100, 200}},
    {.name = "OneBucketForTwoIsSplit",
     .before = {100},
     .after = {50, 120},
     .added = {50, 120},
     .split = {100}},
    {.name = "ABucketThatMovedIsRemovedAndAdded",
     .before = {100},
     .after = {120},
     .added = {120},
     .removed = {100}},
    {.name = "EveryBucketHasItsOwnClass",
     .before = {100, 500, 600},
     .after = {50, 100, 550},
     .added = {50, 550},
     .merged = {500, 600}},
};
SLUICE_TABLE(LadderDiffTable, kLadderDiffRows);

// If the two ladders have different largest buckets, these are classified too.
TEST(CompareLadders, DifferentLargestBucketsAreAddedOrRemoved) {
  const Ladder small({{.tokens = 8, .sequences = 2}});
  const Ladder large({{.tokens = 8, .sequences = 2}, {.tokens = 9, .sequences = 2}});
  EXPECT_THAT(TokensOf(CompareLadders(small, large).added), ElementsAre(9));
  EXPECT_THAT(TokensOf(CompareLadders(large, small).removed), ElementsAre(9));
  // A bucket with the same tokens but another number of sequences is another bucket.
  const LadderDiff diff = CompareLadders(small, Ladder({{.tokens = 8, .sequences = 3}}));
  EXPECT_THAT(TokensOf(diff.added), ElementsAre(8));
  EXPECT_THAT(TokensOf(diff.removed), ElementsAre(8));
}

TEST(CompareLadders, EveryDifferentBucketIsInExactlyOneClass) {
  for (uint64_t seed = 1; seed <= 5000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::set<int32_t> before, after;
    for (uint64_t n = random() % 12; n > 0; --n)
      before.insert(1 + static_cast<int32_t>(random() % 30));
    for (uint64_t n = random() % 12; n > 0; --n)
      after.insert(1 + static_cast<int32_t>(random() % 30));
    const LadderDiff diff = Compare({before.begin(), before.end()}, {after.begin(), after.end()});
    std::map<int32_t, int> gone, come;
    for (const auto* fate : {&diff.removed, &diff.merged, &diff.split}) {
      for (const Bucket& bucket : *fate) ++gone[bucket.tokens];
      EXPECT_TRUE(std::is_sorted(fate->begin(), fate->end()));
    }
    for (const Bucket& bucket : diff.added) ++come[bucket.tokens];
    for (int32_t tokens = 1; tokens <= 1000; ++tokens) {
      const bool was = before.contains(tokens) || tokens == 1000;
      const bool is = after.contains(tokens) || tokens == 1000;
      EXPECT_EQ(gone[tokens], was && !is ? 1 : 0) << tokens;
      EXPECT_EQ(come[tokens], is && !was ? 1 : 0) << tokens;
    }
    EXPECT_LE(diff.split.size() + (diff.split.empty() ? 0 : 1), diff.added.size());
  }
}

}  // namespace
}  // namespace sluice
