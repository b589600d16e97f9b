#include "kernels/cpu/attention_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <queue>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "base/ceil_div.h"
#include "kernels/cpu/attention.h"

#include "kernels/cpu/kv_cache.h"
#include "tests/support/table.h"

namespace sluice::kernels {
namespace {

constexpr AttentionChoice kBalanced = {AttentionOrder::kBalanced};

struct Rows {
  int32_t first;
  int32_t count;
};

std::vector<AttentionSequence> SequencesOf(const std::vector<Rows>& rows) {
  std::vector<AttentionSequence> sequences;
  for (const Rows& each : rows) sequences.push_back({each.first, each.count, nullptr, nullptr});
  return sequences;
}

// Plans with the longest context of the step itself, as in production.
AttentionSizes SizesOf(int32_t q_heads, int32_t kv_heads, int threads,
                       const std::vector<Rows>& rows) {
  AttentionSizes sizes = {q_heads, kv_heads, 64, 0, threads};
  for (const Rows& each : rows) {
    sizes.max_context = std::max<int64_t>(sizes.max_context, each.first + each.count);
  }
  return sizes;
}

std::vector<AttentionItem> ItemsOf(const AttentionSchedule& schedule) {
  std::vector<AttentionItem> items;
  schedule.ForItems(0, schedule.items(), [&](const AttentionItem& item) { items.push_back(item); });
  return items;
}

// Returns the segments that the item reads times the tiles of 8 queries that read them.
int64_t WorkOf(const AttentionItem& item, const AttentionSizes& sizes) {
  return (item.past_segment - item.first_segment) * CeilDiv(int64_t{item.rows} * sizes.group(), 8);
}

// How threads share a step if each takes the next items when it is free.
struct Sharing {
  int64_t makespan = 0;
  double ideal = 0;
  int64_t items = 0;
  int64_t idle_threads = 0;
};

Sharing SharingOf(const AttentionChoice& choice, const AttentionSizes& sizes,
                  const std::vector<Rows>& rows) {
  const std::vector<AttentionSequence> sequences = SequencesOf(rows);
  const AttentionSchedule schedule(choice, sizes, sequences);
  const std::vector<AttentionItem> items = ItemsOf(schedule);
  using Thread = std::pair<int64_t, int>;  // the time when it is free, and its index
  std::priority_queue<Thread, std::vector<Thread>, std::greater<>> threads;
  for (int i = 0; i < sizes.threads; ++i) threads.push({0, i});
  std::vector<int64_t> taken(sizes.threads);
  Sharing sharing = {.items = std::ssize(items)};
  const int64_t grain = schedule.GrainOf(sharing.items);
  for (int64_t begin = 0; begin < sharing.items; begin += grain) {
    auto [end, thread] = threads.top();
    threads.pop();
    for (int64_t i = begin; i < std::min(begin + grain, sharing.items); ++i) {
      const int64_t work = WorkOf(items[i], sizes);
      end += work;
      sharing.ideal += static_cast<double>(work) / sizes.threads;
      if (work > 0) ++taken[thread];
    }
    sharing.makespan = std::max(sharing.makespan, end);
    threads.push({end, thread});
  }
  sharing.idle_threads = std::ranges::count(taken, 0);
  return sharing;
}

struct ScheduleRow {
  const char* name;
  std::vector<Rows> sequences = {};
  int32_t q_heads = 8;
  int32_t kv_heads = 1;
  int threads = 2;
  AttentionChoice choice = kBalanced;
  std::vector<int64_t> blocks = {};  // of each sequence
  std::vector<int64_t> parts = {};
};

class AttentionScheduleTable : public TableTest<ScheduleRow> {};

TEST_P(AttentionScheduleTable, DividesTheStep) {
  const AttentionSizes sizes =
      SizesOf(row().q_heads, row().kv_heads, row().threads, row().sequences);
  const std::vector<AttentionSequence> sequences = SequencesOf(row().sequences);
  const AttentionSchedule schedule(row().choice, sizes, sequences);
  std::vector<int64_t> blocks(sequences.size()), parts(sequences.size());
  for (const AttentionItem& item : ItemsOf(schedule)) {
    const int64_t sequence = item.sequence - sequences.data();
    if (item.first_segment == 0) ++blocks[sequence];
    if (item.first_row == 0 && item.kv_head == 0) ++parts[sequence];
  }
  EXPECT_EQ(blocks, row().blocks);
  EXPECT_EQ(parts, row().parts);
}

const ScheduleRow kScheduleRows[] = {
    {.name = "OneThreadNeverSplits",
     .sequences = {{32767, 1}},
     .threads = 1,
     .blocks = {1},
     .parts = {1}},
    {.name = "OneHeadOf32kKeepsTwoThreadsBusy",
     .sequences = {{32767, 1}},
     .blocks = {1},
     .parts = {8}},
    {.name = "OneHeadOf32kKeeps16ThreadsBusy",
     .sequences = {{32767, 1}},
     .threads = 16,
     .blocks = {1},
     .parts = {64}},
    {.name = "OneHeadOf32kKeeps64ThreadsBusy",
     .sequences = {{32767, 1}},
     .threads = 64,
     .blocks = {1},
     .parts = {64}},
    {.name = "OneHeadOf128kKeeps64ThreadsBusy",
     .sequences = {{131071, 1}},
     .threads = 64,
     .blocks = {1},
     .parts = {256}},
    {.name = "AHeadForEachThreadIsNotSplit",
     .sequences = {{32767, 1}},
     .kv_heads = 2,
     .blocks = {2},
     .parts = {1}},
    {.name = "FourHeadsOnTwoThreadsAreNotSplit",
     .sequences = {{32767, 1}},
     .kv_heads = 4,
     .blocks = {4},
     .parts = {1}},
    {.name = "ThreeEqualSequencesOnTwoThreadsAreSplit",
     .sequences = {{8191, 1}, {8191, 1}, {8191, 1}},
     .blocks = {1, 1, 1},
     .parts = {3, 3, 3}},
    {.name = "ALongSequenceAmongShortOnesIsSplitAlone",
     .sequences = {{900, 1}, {131071, 1}, {900, 1}},
     .blocks = {1, 1, 1},
     .parts = {1, 8, 1}},
    {.name = "ASegmentIsNotSplit", .sequences = {{511, 1}}, .blocks = {1}, .parts = {1}},
    {.name = "TwoSegmentsAreTwoParts", .sequences = {{512, 1}}, .blocks = {1}, .parts = {2}},
    {.name = "APromptHasBlocksOfManyRows",
     .sequences = {{0, 1024}},
     .q_heads = 8,
     .kv_heads = 2,
     .blocks = {64},
     .parts = {1}},
    {.name = "AShortPromptHasBlocksForAllThreads",
     .sequences = {{0, 32}},
     .q_heads = 8,
     .kv_heads = 2,
     .threads = 8,
     .blocks = {32},
     .parts = {1}},
    {.name = "AGivenNumberOfPartsIsTaken",
     .sequences = {{32767, 1}},
     .threads = 1,
     .choice = {AttentionOrder::kSplit, 3},
     .blocks = {1},
     .parts = {3}},
    {.name = "AGivenNumberOfPartsIsTakenByAllSequences",
     .sequences = {{32767, 1}, {8191, 1}, {1023, 1}},
     .choice = {AttentionOrder::kSplit, 4},
     .blocks = {1, 1, 1},
     .parts = {4, 4, 2}},
    {.name = "GivenPartsThatDoNotAllFitAreTakenByNone",
     .sequences = {{8191, 1}, {8191, 1}, {8191, 1}, {8191, 1}, {8191, 1}, {8191, 1}, {8191, 1}},
     .choice = {AttentionOrder::kSplit, 4},
     .blocks = {1, 1, 1, 1, 1, 1, 1},
     .parts = {1, 1, 1, 1, 1, 1, 1}},
    {.name = "GivenPartsFitOneRowOfEveryKvHead",
     .sequences = {{8191, 1}},
     .q_heads = 64,
     .kv_heads = 16,
     .threads = 1,
     .choice = {AttentionOrder::kSplit, 2},
     .blocks = {16},
     .parts = {2}},
    {.name = "BlocksOfAnOddNumberOfRowsAreHalvedToo",
     .sequences = {{0, 25}},
     .q_heads = 10,
     .kv_heads = 1,
     .threads = 4,
     .blocks = {25},
     .parts = {1}},
    {.name = "OnePassIsNotSplit",
     .sequences = {{32767, 1}},
     .choice = {AttentionOrder::kOnePass},
     .blocks = {1},
     .parts = {1}},
    {.name = "TwoPassesAreNotSplit",
     .sequences = {{32767, 1}},
     .choice = {AttentionOrder::kTwoPass},
     .blocks = {1},
     .parts = {1}},
};
SLUICE_TABLE(AttentionScheduleTable, kScheduleRows);

// The sizes and the rows of a step, drawn at random.
struct RandomStep {
  std::vector<Rows> rows;
  AttentionSizes sizes;
  bool decodes = false;  // one row of each sequence

  explicit RandomStep(std::mt19937_64& random) {
    const auto draw = [&random](int64_t low, int64_t high) {
      return static_cast<int32_t>(low + static_cast<int64_t>(random() % (high - low + 1)));
    };
    decodes = draw(0, 1) == 0;
    rows.resize(draw(1, draw(0, 3) == 0 ? 200 : 12));
    const bool alike = draw(0, 2) == 0;
    const int32_t longest = draw(0, 1) == 0 ? 5000 : 100000;
    for (Rows& each : rows) {
      each = {draw(0, draw(0, 1) == 0 ? longest / 50 : longest),
              decodes || draw(0, 1) == 0 ? 1 : draw(1, 300)};
      if (alike) each = rows[0];
    }
    const int32_t kv_heads = draw(1, 8);
    sizes = SizesOf(kv_heads * draw(1, 20), kv_heads, draw(1, draw(0, 1) == 0 ? 4 : 64), rows);
    sizes.causal = draw(0, 3) != 0;
    sizes.of_rows = draw(0, 2) == 0;
  }
};

TEST(AttentionScheduleTest, ItemsCoverAllKeysOnceAndRecordsDoNotOverlap) {
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 1000; ++trial) {
    SCOPED_TRACE(testing::Message() << "trial " << trial << ", seed " << seed);
    const RandomStep step(random);
    const AttentionSizes& sizes = step.sizes;
    const AttentionChoice choice = {static_cast<AttentionOrder>(random() % 4),
                                    static_cast<int32_t>(1 + random() % 9)};
    const std::vector<AttentionSequence> sequences = SequencesOf(step.rows);
    const AttentionSchedule schedule(choice, sizes, sequences);
    ASSERT_LE(schedule.records(), AttentionSchedule::MaxRecords(choice, sizes));
    const bool may_split = choice.order == AttentionOrder::kSplit && choice.parts > 1 &&
                           sizes.max_context > kSegmentTokens;
    if (may_split && schedule.divided_queries() == 0 && sizes.threads > 1) {
      ASSERT_GT(schedule.items(), 2 * sizes.threads);
    }

    // Items follow each other: parts of a block, KV heads and rows in either order, sequences.
    int64_t sequence = 0, row = 0, kv_head = 0, segment = 0, records = 0, queries = 0;
    bool divided = false;
    for (const AttentionItem& item : ItemsOf(schedule)) {
      ASSERT_EQ(item.sequence - sequences.data(), sequence);
      ASSERT_EQ(item.first_row, row);
      ASSERT_EQ(item.kv_head, kv_head);
      ASSERT_EQ(item.first_segment, segment);
      ASSERT_GE(item.past_segment, segment);
      const int32_t count = item.sequence->count;
      const int64_t rows_seen = sizes.causal ? item.first_row + item.rows : count;
      ASSERT_EQ(item.visible, item.sequence->first_position + rows_seen);
      ASSERT_LE(int64_t{item.rows} * sizes.group(), AttentionSchedule::MaxQueries(sizes));
      if (item.record >= 0 && segment == 0 && !divided) {
        ASSERT_GE(item.record, records);
        records = item.record + CeilDiv(item.visible, kSegmentTokens) * item.rows * sizes.group();
        queries += item.rows * sizes.group();
        divided = true;
      }
      segment = item.past_segment;
      if (segment < CeilDiv(item.visible, kSegmentTokens)) continue;
      segment = 0;
      divided = false;
      const auto wraps = [&](bool rows) {  // continues with the next block of rows, or head
        if (rows) return (row = (row + item.rows) % count) == 0;
        return (kv_head = (kv_head + 1) % sizes.kv_heads) == 0;
      };
      if (wraps(sizes.of_rows) && wraps(!sizes.of_rows)) ++sequence;
    }
    ASSERT_EQ(sequence, std::ssize(sequences));
    ASSERT_LE(records, schedule.records());
    ASSERT_EQ(queries, schedule.divided_queries());
  }
}

// Threads take ranges of items and of queries to fold. The ranges must have the same items as the
// whole.
TEST(AttentionScheduleTest, RangesHaveTheItemsOfTheWhole) {
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 100; ++trial) {
    SCOPED_TRACE(testing::Message() << "trial " << trial << ", seed " << seed);
    const RandomStep step(random);
    const std::vector<AttentionSequence> sequences = SequencesOf(step.rows);
    const AttentionSchedule schedule(
        trial % 2 == 0 ? kBalanced : AttentionChoice{AttentionOrder::kSplit, 2}, step.sizes,
        sequences);
    using Seen = std::tuple<const AttentionSequence*, int32_t, int32_t, int64_t, int64_t>;
    std::vector<Seen> items, pieces, queries, query_pieces;
    const auto add_items = [&](int64_t begin, int64_t end, std::vector<Seen>* to) {
      schedule.ForItems(begin, end, [to](const AttentionItem& item) {
        to->push_back(
            {item.sequence, item.first_row, item.kv_head, item.first_segment, item.record});
      });
    };
    const auto add_queries = [&](int64_t begin, int64_t end, std::vector<Seen>* to) {
      schedule.ForDividedQueries(begin, end, [to](const AttentionItem& block, int64_t index) {
        to->push_back({block.sequence, block.first_row, block.kv_head, index, block.record});
      });
    };
    add_items(0, schedule.items(), &items);
    add_queries(0, schedule.divided_queries(), &queries);
    const int64_t length = 1 + static_cast<int64_t>(random() % 40);
    for (int64_t i = 0; i < schedule.items(); i += length) {
      add_items(i, std::min(i + length, schedule.items()), &pieces);
    }
    for (int64_t i = 0; i < schedule.divided_queries(); i += length) {
      add_queries(i, std::min(i + length, schedule.divided_queries()), &query_pieces);
    }
    ASSERT_EQ(std::ssize(items), schedule.items());
    ASSERT_EQ(std::ssize(queries), schedule.divided_queries());
    ASSERT_EQ(pieces, items);
    ASSERT_EQ(query_pieces, queries);
    for (const Seen& query : queries) ASSERT_GE(std::get<4>(query), 0);
  }
}

TEST(AttentionScheduleTest, ABalancedStepNeverTakesLongerThanOneWithoutParts) {
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  int divided = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    SCOPED_TRACE(testing::Message() << "trial " << trial << ", seed " << seed);
    const RandomStep step(random);
    const Sharing whole = SharingOf({AttentionOrder::kOnePass}, step.sizes, step.rows);
    const Sharing balanced = SharingOf(kBalanced, step.sizes, step.rows);
    ASSERT_LE(balanced.makespan, whole.makespan);
    divided += balanced.items > whole.items;
    if (!step.decodes) continue;
    // If all parts fit: the last item ends at most 3/8 of a thread's share plus one segment after
    // the others, and parts that gain less than a tenth are omitted.
    const double tiles = static_cast<double>(CeilDiv(step.sizes.group(), 8));
    ASSERT_LE(static_cast<double>(balanced.makespan), 1.1 * (1.375 * balanced.ideal + tiles));
  }
  EXPECT_GT(divided, 200);
}

// A slot has memory for the model's longest context; steps with shorter ones use less of it.
TEST(AttentionScratchTest, GrowsWithTheContextAndOnlyTwoPassesKeepAllScores) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 1000; ++trial) {
    AttentionSizes sizes = RandomStep(random).sizes;
    for (int order = 0; order < 4; ++order) {
      const AttentionChoice choice = {static_cast<AttentionOrder>(order), 3};
      const int64_t floats = AttentionScratchFloats(choice, sizes);
      AttentionSizes longer = sizes;
      longer.max_context += static_cast<int64_t>(random() % 5000);
      ASSERT_LE(floats, AttentionScratchFloats(choice, longer));
    }
  }
  std::printf("threads  one_pass  two_pass  split:auto  split:4  a row of scores, MiB\n");
  for (const int threads : {2, 64}) {
    const auto mib = [&](const AttentionChoice& choice, int64_t context) {
      const int64_t floats = AttentionScratchFloats(choice, {32, 8, 128, context, threads});
      return static_cast<double>(floats) * sizeof(float) / (1 << 20);
    };
    constexpr int64_t kContext = 1 << 17;
    const double one_pass = mib({AttentionOrder::kOnePass}, kContext);
    const double two_pass = mib({AttentionOrder::kTwoPass}, kContext);
    const double balanced = mib(kBalanced, kContext);
    const double split = mib({AttentionOrder::kSplit, 4}, kContext);
    const double score_rows = threads * 8.0 * (kContext + 128) * sizeof(float) / (1 << 20);
    std::printf("%7d  %8.2f  %8.2f  %10.2f  %7.2f  %15.2f\n", threads, one_pass, two_pass, balanced,
                split, score_rows);
    EXPECT_EQ(one_pass, mib({AttentionOrder::kOnePass}, 512));
    EXPECT_LT(balanced, score_rows);
  }
}

struct UnevenRow {
  const char* name;
  int sequences;
  int32_t kv_heads = 1;
  int threads = 4;
  int64_t whole = 32;  // the makespan without parts
  int64_t most = 0;    // the limit of the makespan with parts
};

class UnevenStepTable : public TableTest<UnevenRow> {};

// Sequences of 8,192 keys and 16 queries for each KV head: 32 units of work.
TEST_P(UnevenStepTable, IsDividedAsAWhole) {
  const std::vector<Rows> rows(static_cast<size_t>(row().sequences), Rows{8191, 1});
  const AttentionSizes sizes = SizesOf(16 * row().kv_heads, row().kv_heads, row().threads, rows);
  EXPECT_EQ(SharingOf({AttentionOrder::kOnePass}, sizes, rows).makespan, row().whole);
  EXPECT_LE(SharingOf(kBalanced, sizes, rows).makespan, row().most);
}

const UnevenRow kUnevenRows[] = {
    {.name = "ThreeSequencesOnFourThreads", .sequences = 3, .threads = 4, .most = 28},
    {.name = "FiveSequencesOnEightThreads", .sequences = 5, .threads = 8, .most = 24},
    {.name = "ThirtyThreeSequencesOn64Threads", .sequences = 33, .threads = 64, .most = 20},
    {.name = "TenHeadsOn16Threads", .sequences = 5, .kv_heads = 2, .threads = 16, .most = 24},
};
SLUICE_TABLE(UnevenStepTable, kUnevenRows);

TEST(AttentionScheduleTest, OneLongSequenceLeavesNoThreadIdle) {
  std::printf("context  KV heads  threads  items  makespan / ideal\n");
  for (const int32_t context : {32768, 131072}) {
    for (const int32_t kv_heads : {1, 2, 4, 8}) {
      for (const int threads : {16, 64}) {
        const std::vector<Rows> rows = {{context - 1, 1}};
        const Sharing sharing =
            SharingOf(kBalanced, SizesOf(4 * kv_heads, kv_heads, threads, rows), rows);
        std::printf("%7d  %8d  %7d  %5d  %16.2f\n", context, kv_heads, threads,
                    static_cast<int>(sharing.items),
                    static_cast<double>(sharing.makespan) / sharing.ideal);
        EXPECT_EQ(sharing.idle_threads, 0) << context << " " << kv_heads << " " << threads;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels
