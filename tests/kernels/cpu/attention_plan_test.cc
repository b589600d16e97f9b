#include "kernels/cpu/attention_plan.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

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

struct PlanRow {
  const char* name;
  std::vector<Rows> sequences = {};
  int32_t q_heads = 8;
  int32_t kv_heads = 1;
  int threads = 2;
  AttentionChoice choice = kBalanced;
  std::vector<int64_t> blocks = {};  // of each sequence
  std::vector<int64_t> parts = {};
};

class AttentionPlanTable : public TableTest<PlanRow> {};

TEST_P(AttentionPlanTable, DividesTheStep) {
  const AttentionSizes sizes = {row().q_heads, row().kv_heads, 64, 1 << 17, row().threads};
  const std::vector<AttentionSequence> sequences = SequencesOf(row().sequences);
  const AttentionPlan plan(row().choice, sizes, sequences);
  std::vector<int64_t> blocks, parts;
  int64_t records = 0;
  for (const AttentionSequence& sequence : sequences) {
    const SequenceItems items = plan.ItemsOf(sequence, &records);
    blocks.push_back(items.blocks);
    parts.push_back(items.parts);
  }
  EXPECT_EQ(blocks, row().blocks);
  EXPECT_EQ(parts, row().parts);
}

const PlanRow kPlanRows[] = {
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
SLUICE_TABLE(AttentionPlanTable, kPlanRows);

TEST(AttentionPlanTest, RecordsNeitherOverlapNorPassTheirBound) {
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 2000; ++trial) {
    SCOPED_TRACE(testing::Message() << "trial " << trial << ", seed " << seed);
    const auto draw = [&random](int64_t low, int64_t high) {
      return static_cast<int32_t>(low + static_cast<int64_t>(random() % (high - low + 1)));
    };
    const int32_t kv_heads = draw(1, 8);
    AttentionSizes sizes = {kv_heads * draw(1, 16), kv_heads, 64, 0, draw(1, 64)};
    const AttentionChoice choice = {static_cast<AttentionOrder>(draw(0, 3)), draw(1, 9)};
    std::vector<Rows> rows(draw(1, 12));
    for (Rows& each : rows) {
      each = {draw(0, draw(0, 1) == 0 ? 100 : 100000), draw(1, draw(0, 1) == 0 ? 1 : 300)};
      sizes.max_context = std::max<int64_t>(sizes.max_context, each.first + each.count);
    }
    const std::vector<AttentionSequence> sequences = SequencesOf(rows);
    const AttentionPlan plan(choice, sizes, sequences);
    ASSERT_LE(plan.block_rows() * int64_t{sizes.group()}, AttentionPlan::MaxQueries(sizes));
    int64_t records = 0, used = 0;
    for (const AttentionSequence& sequence : sequences) {
      const SequenceItems items = plan.ItemsOf(sequence, &records);
      ASSERT_GE(items.blocks * plan.block_rows(), sequence.count);
      ASSERT_GE(items.parts, 1);
      if (items.parts == 1) continue;
      ASSERT_LE(items.parts, items.segments);
      ASSERT_EQ(items.records, used);
      ASSERT_GE(items.block_queries, std::min(plan.block_rows(), sequence.count) * sizes.group());
      used += items.blocks * items.block_queries * items.segments;
    }
    ASSERT_EQ(records, used);
    ASSERT_LE(used, AttentionPlan::MaxRecords(choice, sizes));
  }
}

}  // namespace
}  // namespace sluice::kernels
