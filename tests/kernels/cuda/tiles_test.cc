// The tile lists that the host writes.
#include <gmock/gmock.h>

#include <map>
#include <numeric>
#include <vector>

#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/row_tiles.h"
#include "tests/kernels/common/values.h"
#include "tests/support/table.h"

namespace sluice::kernels::cuda {
namespace {

struct RowTilesRow {
  const char* name;
  std::vector<RowGroup> groups, tiles;
};
class RowTilesTable : public TableTest<RowTilesRow> {};

TEST_P(RowTilesTable, GroupsAreCutInOrder) {
  std::vector<RowGroup> tiles(10);
  tiles.resize(CutIntoRowTiles(row().groups, tiles.data()));
  EXPECT_TRUE(SameBits(tiles, row().tiles));
}

const RowTilesRow kRowTilesRows[] = {
    {.name = "NoGroupHasNoTile", .groups = {}, .tiles = {}},
    {.name = "AGroupWithoutRowsHasNoTile", .groups = {{3, 0, 0}}, .tiles = {}},
    {.name = "OneRowIsATile", .groups = {{3, 5, 1}}, .tiles = {{3, 5, 1}}},
    {.name = "AFullTileIsNotCut", .groups = {{0, 0, 64}}, .tiles = {{0, 0, 64}}},
    {.name = "OneRowMoreIsATileOfItsOwn",
     .groups = {{0, 0, 65}},
     .tiles = {{0, 0, 64}, {0, 64, 1}}},
    {.name = "GroupsDoNotShareTiles",
     .groups = {{1, 0, 2}, {2, 2, 130}, {7, 132, 3}},
     .tiles = {{1, 0, 2}, {2, 2, 64}, {2, 66, 64}, {2, 130, 2}, {7, 132, 3}}},
};
SLUICE_TABLE(RowTilesTable, kRowTilesRows);

// Every row is in one tile of its position. The tiles ascend, have at most kTileRows rows, and are
// the fewest possible.
TEST(RowTilesTest, AnyGroupsAreCovered) {
  constexpr uint64_t kSeed = 20261123;
  std::mt19937_64 random(kSeed);
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(testing::Message() << "trial " << trial << ", seed " << kSeed);
    std::vector<RowGroup> groups(RandomInt(random, 0, 40));
    std::vector<int32_t> positions;  // by row
    int32_t fewest = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      const int32_t rows = RandomInt(random, 0, RandomInt(random, 0, 3) == 0 ? 300 : 5);
      groups[g] = {static_cast<int32_t>(2 * g), static_cast<int32_t>(positions.size()), rows};
      positions.insert(positions.end(), rows, groups[g].matrix);
      fewest += (rows + kTileRows - 1) / kTileRows;
    }
    const auto rows = static_cast<int32_t>(positions.size());
    std::vector<RowGroup> tiles(rows + 1, {-1, -1, -1});
    const int32_t count = CutIntoRowTiles(groups, tiles.data());
    EXPECT_EQ(count, fewest);
    ASSERT_LE(count, MaxRowTiles(rows, std::ssize(groups)));
    EXPECT_EQ(tiles[count].count, -1) << "more was written than counted";
    int32_t next = 0;
    for (int32_t t = 0; t < count; ++t) {
      ASSERT_EQ(tiles[t].first_row, next);
      ASSERT_GE(tiles[t].count, 1);
      ASSERT_LE(tiles[t].count, kTileRows);
      for (int32_t i = 0; i < tiles[t].count; ++i) {
        ASSERT_EQ(tiles[t].matrix, positions[next++]);
      }
    }
    EXPECT_EQ(next, rows);
  }
}

struct AttentionTilesRow {
  const char* name;
  std::vector<std::pair<int32_t, int32_t>> places;  // first position and rows of each sequence
  AttentionSizes sizes;
  std::vector<AttentionTile> wide = {}, narrow = {}, divided = {};
};
class AttentionTilesTable : public TableTest<AttentionTilesRow> {};

std::vector<AttentionSequence> SequencesAt(const std::vector<std::pair<int32_t, int32_t>>& places) {
  std::vector<AttentionSequence> sequences;
  for (const auto& [first, count] : places) sequences.push_back({first, count, 0, 0});
  return sequences;
}

constexpr AttentionTile kNoTile = {-1, -1, -1, -1, -1, -1};

// The tiles of a step, each kind in its order.
struct CutTiles {
  std::vector<AttentionTile> wide, narrow, divided;
};
CutTiles Cut(const std::vector<AttentionSequence>& sequences, const AttentionSizes& sizes) {
  std::vector<AttentionTile> tiles(MaxAttentionTiles(sizes), kNoTile);
  const AttentionTileCounts counts = CutIntoAttentionTiles(sequences, sizes, tiles);
  const auto narrow = tiles.begin() + counts.wide, end = narrow + counts.narrow;
  EXPECT_LE(counts.wide + counts.narrow + counts.divided, std::ssize(tiles));
  return {
      {tiles.begin(), narrow}, {narrow, end}, {tiles.rbegin(), tiles.rbegin() + counts.divided}};
}

TEST_P(AttentionTilesTable, QueriesAreCutAndKeysDivided) {
  const CutTiles tiles = Cut(SequencesAt(row().places), row().sizes);
  EXPECT_TRUE(SameBits(tiles.wide, row().wide));
  EXPECT_TRUE(SameBits(tiles.narrow, row().narrow));
  EXPECT_TRUE(SameBits(tiles.divided, row().divided));
}

// The sizes of a step of `rows` rows, on a device that runs 8 blocks at a time.
constexpr AttentionSizes SizesOf(int32_t q_heads, int32_t kv_heads, int64_t rows,
                                 int64_t max_context = 4096) {
  return {.q_heads = q_heads,
          .kv_heads = kv_heads,
          .causal = true,
          .max_context = max_context,
          .processors = 4,
          .rows = rows,
          .sequences = 8};
}

constexpr AttentionSizes kBothWays = {.q_heads = 2,
                                      .kv_heads = 2,
                                      .causal = false,
                                      .max_context = 512,
                                      .processors = 4,
                                      .rows = 100,
                                      .sequences = 1};

const AttentionTilesRow kAttentionTilesRows[] = {
    {.name = "NoSequenceHasNoTile", .places = {}, .sizes = SizesOf(8, 2, 8)},
    {.name = "ADecodeStepIsANarrowTile",
     .places = {{0, 1}},
     .sizes = SizesOf(8, 2, 8),
     .narrow = {{0, 0, 1, 0, 1, -1}}},
    {.name = "AFullTileIsNotCut",
     .places = {{0, 16}},
     .sizes = SizesOf(8, 2, 16),
     .wide = {{0, 0, 16, 0, 1, -1}}},
    {.name = "OneRowMoreIsANarrowTile",
     .places = {{0, 17}},
     .sizes = SizesOf(8, 2, 17),
     .wide = {{0, 0, 16, 0, 1, -1}},
     .narrow = {{0, 64, 17, 0, 1, -1}}},
    {.name = "ARowMayBeCutBetweenItsHeads",
     .places = {{0, 22}},
     .sizes = SizesOf(6, 2, 22),
     .wide = {{0, 0, 22, 0, 1, -1}},
     .narrow = {{0, 64, 22, 0, 1, -1}}},
    {.name = "ATileThatSeesMoreComesFirst",
     .places = {{0, 1}, {7, 65}, {20, 2}},
     .sizes = SizesOf(2, 2, 68),
     .wide = {{1, 0, 71, 0, 1, -1}},
     .narrow = {{1, 64, 72, 0, 1, -1}, {2, 0, 22, 0, 1, -1}, {0, 0, 1, 0, 1, -1}}},
    {.name = "InBothDirectionsEveryQuerySeesAll",
     .places = {{0, 100}},
     .sizes = kBothWays,
     .wide = {{0, 0, 100, 0, 1, -1}, {0, 64, 100, 0, 1, -1}}},
    {.name = "SegmentsThatABlockEachCanReadAreApart",
     .places = {{1024, 1}, {0, 1}},
     .sizes = SizesOf(8, 2, 8),
     .narrow =
         {{0, 0, 1025, 0, 1, 0}, {0, 0, 1025, 1, 2, 0}, {0, 0, 1025, 2, 3, 0}, {1, 0, 1, 0, 1, -1}},
     .divided = {{0, 0, 1025, 0, 3, 0}}},
    {.name = "OfMoreSegmentsABlockReadsSeveral",
     .places = {{4095, 1}, {2047, 1}},
     .sizes = SizesOf(8, 2, 8),
     .narrow = {{1, 0, 2048, 0, 4, -1},
                {0, 0, 4096, 0, 2, 0},
                {0, 0, 4096, 2, 4, 0},
                {0, 0, 4096, 4, 6, 0},
                {0, 0, 4096, 6, 8, 0}},
     .divided = {{0, 0, 4096, 0, 8, 0}}},
    {.name = "ATileWithTheWorkOfABlockStaysWhole",
     .places = {{1023, 1}, {1023, 1}, {1023, 1}, {1023, 1}},
     .sizes = SizesOf(8, 2, 8),
     .narrow = {{0, 0, 1024, 0, 2, -1},
                {1, 0, 1024, 0, 2, -1},
                {2, 0, 1024, 0, 2, -1},
                {3, 0, 1024, 0, 2, -1}}},
};
SLUICE_TABLE(AttentionTilesTable, kAttentionTilesRows);

// Every query and KV head reads once every segment that its tile sees, in descending order of work,
// and no two tiles share a record.
TEST(AttentionTilesTest, AnySequencesAreCoveredWithinTheBounds) {
  constexpr uint64_t kSeed = 20261123;
  std::mt19937_64 random(kSeed);
  int divided = 0, without_room = 0;
  for (int trial = 0; trial < 500; ++trial) {
    SCOPED_TRACE(testing::Message() << "trial " << trial << ", seed " << kSeed);
    const int32_t group = RandomInt(random, 1, 16), kv_heads = RandomInt(random, 1, 8);
    std::vector<std::pair<int32_t, int32_t>> places(RandomInt(random, 0, 30));
    AttentionSizes sizes = {.q_heads = group * kv_heads,
                            .kv_heads = kv_heads,
                            .causal = random() % 4 != 0,
                            .max_context = 1,
                            .processors = RandomInt(random, 1, 200),
                            .rows = RandomInt(random, 0, 20),
                            .sequences = std::ssize(places) + RandomInt(random, 0, 5)};
    const int32_t most = random() % 2 == 0 ? 300 : 20000;
    for (auto& [first, count] : places) {
      first = random() % 2 == 0 ? 0 : RandomInt(random, 0, most);
      count = RandomInt(random, 1, RandomInt(random, 1, 200));
      sizes.rows += count;
      sizes.max_context = std::max<int64_t>(sizes.max_context, first + count);
    }
    const std::vector<AttentionSequence> sequences = SequencesAt(places);
    const CutTiles tiles = Cut(sequences, sizes);
    const int64_t most_records = MaxAttentionRecords(sizes);
    std::vector<int> taken(most_records);
    std::map<std::pair<int32_t, int32_t>, std::vector<int>> read;  // by tile, of each segment
    std::map<std::pair<int32_t, int32_t>, int32_t> whole;          // the records of divided tiles
    for (const AttentionTile& tile : tiles.divided) {
      whole[{tile.sequence, tile.first}] = tile.record;
      const int32_t queries =
          std::min(kTileQueries, sequences[tile.sequence].count * group - tile.first);
      const int64_t records = int64_t{queries} * kv_heads * tile.past_segment;
      ASSERT_LE(tile.record + records, most_records);
      for (int64_t i = 0; i < records; ++i) ASSERT_EQ(++taken[tile.record + i], 1);
    }
    for (const bool narrow : {false, true}) {
      int64_t before = std::numeric_limits<int64_t>::max();
      for (const AttentionTile& tile : narrow ? tiles.narrow : tiles.wide) {
        const AttentionSequence& sequence = sequences[tile.sequence];
        const int32_t queries = std::min(kTileQueries, sequence.count * group - tile.first);
        ASSERT_EQ(queries <= kWarpQueries, narrow);
        const int32_t last = (tile.first + queries - 1) / group;
        ASSERT_EQ(tile.context,
                  sequence.first_position + (sizes.causal ? last + 1 : sequence.count));
        ASSERT_LT(tile.first_segment, tile.past_segment);
        const auto found = whole.find({tile.sequence, tile.first});
        ASSERT_EQ(tile.record, found == whole.end() ? -1 : found->second);
        std::vector<int>& segments = read[{tile.sequence, tile.first}];
        segments.resize(CeilDiv(tile.context, kSegmentTokens));
        for (int32_t s = tile.first_segment; s < tile.past_segment; ++s) ++segments[s];
        const int64_t keys = std::min<int64_t>(tile.context, tile.past_segment * kSegmentTokens) -
                             tile.first_segment * kSegmentTokens;
        ASSERT_LE(keys, before);
        before = keys;
      }
    }
    for (int32_t s = 0; s < std::ssize(places); ++s) {
      for (int32_t first = 0; first < sequences[s].count * group; first += kTileQueries) {
        ASSERT_THAT((read[{s, first}]), testing::Each(1));
        read.erase({s, first});
      }
    }
    ASSERT_TRUE(read.empty());
    divided += !tiles.divided.empty();
    without_room += most_records > 0 && tiles.divided.empty();
  }
  EXPECT_GT(divided, 50);
  EXPECT_GT(without_room, 5);
}

}  // namespace
}  // namespace sluice::kernels::cuda
