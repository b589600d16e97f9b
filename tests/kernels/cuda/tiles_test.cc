// The tile lists that the host writes.
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

// Every row is in one tile of its position, the tiles ascend, are no larger than kTileRows and as
// few as possible.
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
      positions.insert(positions.end(), rows, groups[g].position);
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
        ASSERT_EQ(tiles[t].position, positions[next++]);
      }
    }
    EXPECT_EQ(next, rows);
  }
}

struct AttentionTilesRow {
  const char* name;
  std::vector<int32_t> counts;  // rows of each sequence
  int32_t group;
  std::vector<AttentionTile> tiles;
};
class AttentionTilesTable : public TableTest<AttentionTilesRow> {};

std::vector<AttentionSequence> SequencesWith(const std::vector<int32_t>& counts) {
  std::vector<AttentionSequence> sequences;
  for (const int32_t count : counts) sequences.push_back({9, count, 0, 0});
  return sequences;
}

TEST_P(AttentionTilesTable, PackedQueriesAreCutInOrder) {
  std::vector<AttentionTile> tiles(10);
  tiles.resize(CutIntoAttentionTiles(SequencesWith(row().counts), row().group, tiles.data()));
  EXPECT_TRUE(SameBits(tiles, row().tiles));
}

const AttentionTilesRow kAttentionTilesRows[] = {
    {.name = "NoSequenceHasNoTile", .counts = {}, .group = 4, .tiles = {}},
    {.name = "ADecodeStepIsATile", .counts = {1}, .group = 4, .tiles = {{0, 0}}},
    {.name = "AFullTileIsNotCut", .counts = {16}, .group = 4, .tiles = {{0, 0}}},
    {.name = "OneRowMoreIsATileOfItsOwn", .counts = {17}, .group = 4, .tiles = {{0, 0}, {0, 64}}},
    {.name = "ARowMayBeCutBetweenItsHeads", .counts = {22}, .group = 3, .tiles = {{0, 0}, {0, 64}}},
    {.name = "SequencesDoNotShareTiles",
     .counts = {1, 65, 2},
     .group = 1,
     .tiles = {{0, 0}, {1, 0}, {1, 64}, {2, 0}}},
};
SLUICE_TABLE(AttentionTilesTable, kAttentionTilesRows);

TEST(AttentionTilesTest, AnySequencesAreCoveredWithinTheBound) {
  constexpr uint64_t kSeed = 20261123;
  std::mt19937_64 random(kSeed);
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(testing::Message() << "trial " << trial << ", seed " << kSeed);
    const int32_t group = RandomInt(random, 1, 16);
    std::vector<int32_t> counts(RandomInt(random, 0, 30));
    for (int32_t& count : counts) count = RandomInt(random, 1, RandomInt(random, 1, 200));
    const int64_t rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    std::vector<AttentionTile> tiles(rows * group + 1, {-1, -1});
    const int32_t count = CutIntoAttentionTiles(SequencesWith(counts), group, tiles.data());
    ASSERT_LE(count, MaxAttentionTiles(rows, std::ssize(counts), group));
    EXPECT_EQ(tiles[count].sequence, -1) << "more was written than counted";
    int32_t next = 0;
    for (int32_t s = 0; s < std::ssize(counts); ++s) {
      for (int32_t first = 0; first < counts[s] * group; first += kTileQueries) {
        ASSERT_LT(next, count);
        ASSERT_EQ(tiles[next].sequence, s);
        ASSERT_EQ(tiles[next++].first, first);
      }
    }
    EXPECT_EQ(next, count);
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
