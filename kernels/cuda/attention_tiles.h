// The tile list of attention: the queries of each sequence are divided into tiles, and the keys of
// long sequences among several parts of a tile. The host writes the list once per step for all
// layers.
//
// The queries of a sequence that share a KV head are packed: query i is query head i % group of the
// KV head in row i / group of the sequence's rows, group = q_heads / kv_heads.
//
// If there is too little work to keep the device busy, or one tile has much more than the others,
// tiles are divided by segments of keys (kernels/kv_segment.h). The sums of each segment then go to
// a record in memory, and a second kernel merges them. The division never changes a bit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/ceil_div.h"
#include "kernels/kv_segment.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kTileQueries = 64;  // of a block
// The queries of a warp. The warps of a block share a tile with at most this many queries.
inline constexpr int32_t kWarpQueries = 16;
// The blocks of attention that a processor runs at a time, if shared memory permits.
inline constexpr int32_t kAttentionBlocks = 2;

// One sequence of the step batch. The keys of positions [0, first_position + count) are in the
// cache when attention runs.
struct AttentionSequence {
  int32_t first_position;
  int32_t count;         // rows of this step
  int32_t rows_offset;   // offset of its row indices; they are in ascending order of position
  int32_t pages_offset;  // offset of its page ids
};

// The packed queries [first, first + kTileQueries) of the sequence, or fewer at its end, and the
// segments of keys [first_segment, past_segment).
struct AttentionTile {
  int32_t sequence;
  int32_t first;
  int32_t context;  // the number of positions that the last query sees
  int32_t first_segment;
  int32_t past_segment;
  int32_t record;  // the first record of a divided tile; -1 for a tile that is not divided
};

struct AttentionTileCounts {
  int32_t wide;     // tiles with more than kWarpQueries queries, and parts of such tiles
  int32_t narrow;   // other tiles and parts
  int32_t divided;  // divided tiles
};

struct AttentionTiles {
  // [capacity]. From the front: the wide tiles and then the narrow ones, both in descending order
  // of work. From the back: the divided tiles, each as a whole.
  const AttentionTile* tiles;
  const AttentionTileCounts* counts;  // on the device
  // How many work items blocks have taken, on the device. It is 0 between launches.
  int32_t* taken;
  int32_t capacity;
  int32_t records;  // the most records of divided tiles
};

// The limits of a step, and the sizes that decide how its tiles are divided.
struct AttentionSizes {
  int32_t q_heads;  // a multiple of kv_heads
  int32_t kv_heads;
  bool causal;
  int64_t max_context;
  int32_t processors;  // of the device
  int64_t rows;
  int64_t sequences;

  constexpr int32_t group() const { return q_heads / kv_heads; }
  constexpr int64_t max_segments() const { return CeilDiv(max_context, kSegmentTokens); }
  // Returns the blocks that the device runs at a time.
  constexpr int64_t blocks() const { return int64_t{kAttentionBlocks} * processors; }
  constexpr int64_t whole_tiles() const { return rows * group() / kTileQueries + sequences; }
};

// Returns the most records of a step's tiles: the smaller of two numbers. The first is the records
// of all queries over the longest context. The second is the larger of the records of one full tile
// and kRecordsOfAProcessor for each processor. Tiles without room for their records are not
// divided.
constexpr int64_t MaxAttentionRecords(const AttentionSizes& sizes) {
  constexpr int64_t kRecordsOfAProcessor = 4 * kTileQueries;
  if (sizes.max_segments() <= 1) return 0;
  const int64_t queries = sizes.rows * sizes.group();
  const int64_t of_a_query = sizes.kv_heads * sizes.max_segments();
  return std::min(queries * of_a_query,
                  std::max(std::min<int64_t>(queries, kTileQueries) * of_a_query,
                           kRecordsOfAProcessor * sizes.processors));
}

// Returns the most tiles of a step's list: all tiles, once more all tiles in case they are divided,
// and the parts. Apart from the last part of each tile, there are at most two parts for each block.
constexpr int64_t MaxAttentionTiles(const AttentionSizes& sizes) {
  if (sizes.max_segments() <= 1) return sizes.whole_tiles();
  return 2 * sizes.whole_tiles() + CeilDiv(2 * sizes.blocks(), sizes.kv_heads);
}

// How the tiles of a step are divided.
struct AttentionDivision {
  int64_t part_segments;   // the most segments of a part
  int64_t whole_segments;  // the most segments of a tile that is not divided
};

// Returns the division of a step whose tiles read `segments` in all, once for each KV head. If the
// device can run a block for each segment at the same time, each segment is a part. Otherwise a
// part is half the work of a block, and a tile with at most whole_segments is not divided.
constexpr AttentionDivision DivideAttention(const AttentionSizes& sizes, int64_t segments) {
  if (segments <= sizes.blocks()) return {1, 1};
  const int64_t part = CeilDiv(segments, 2 * sizes.blocks());
  return {part, 2 * part};
}

// Calls visit(tile, queries) for the tiles of the sequences, in their order. A sequence is any
// struct with the `first_position` and `count` of AttentionSequence. `hidden` has for each sequence
// the number of last positions that are keys for no query; it may be empty. Hidden positions
// require attention in both directions, no XSA, and that each query sees a key.
template <typename Sequences, typename Visit>
void ForWholeAttentionTiles(const Sequences& sequences, const AttentionSizes& sizes,
                            std::span<const int32_t> hidden, Visit visit) {
  const int32_t group = sizes.group();
  int32_t index = 0;
  for (const auto& each : sequences) {
    const int32_t all = each.count * group;
    for (int32_t first = 0; first < all; first += kTileQueries) {
      const int32_t queries = std::min(kTileQueries, all - first);
      const int32_t keys = each.count - (hidden.empty() ? 0 : hidden[static_cast<size_t>(index)]);
      const int32_t rows = sizes.causal ? (first + queries - 1) / group + 1 : keys;
      const int32_t context = each.first_position + rows;
      const auto segments = static_cast<int32_t>(CeilDiv(context, kSegmentTokens));
      visit(AttentionTile{index, first, context, 0, segments, -1}, queries);
    }
    ++index;
  }
}

// Writes the tiles of the sequences to `tiles` [MaxAttentionTiles] as AttentionTiles describes.
template <typename Sequences>
AttentionTileCounts CutIntoAttentionTiles(const Sequences& sequences, const AttentionSizes& sizes,
                                          std::span<AttentionTile> tiles,
                                          std::span<const int32_t> hidden = {}) {
  int64_t segments = 0;
  ForWholeAttentionTiles(sequences, sizes, hidden, [&](const AttentionTile& tile, int32_t) {
    segments += tile.past_segment;
  });
  const AttentionDivision division = DivideAttention(sizes, segments * sizes.kv_heads);
  const int64_t most_records = MaxAttentionRecords(sizes);
  AttentionTileCounts counts = {};
  int64_t records = 0;
  size_t wide = 0, narrow = 0;  // narrow tiles are put after the room for all wide ones
  const auto put = [&](const AttentionTile& tile, int32_t queries) {
    tiles[wide + narrow] = tile;
    ++(queries > kWarpQueries ? wide : narrow);
    if (queries > kWarpQueries) std::swap(tiles[wide - 1], tiles[wide + narrow - 1]);
  };
  ForWholeAttentionTiles(sequences, sizes, hidden, [&](AttentionTile tile, int32_t queries) {
    const int64_t all = tile.past_segment;
    const int64_t needed = int64_t{queries} * sizes.kv_heads * all;
    if (all <= division.whole_segments || records + needed > most_records) {
      put(tile, queries);
      return;
    }
    tile.record = static_cast<int32_t>(records);
    records += needed;
    tiles[tiles.size() - static_cast<size_t>(++counts.divided)] = tile;
    const int64_t parts = CeilDiv(all, division.part_segments);
    for (int64_t part = 0; part < parts; ++part) {
      tile.first_segment = static_cast<int32_t>(all * part / parts);
      tile.past_segment = static_cast<int32_t>(all * (part + 1) / parts);
      put(tile, queries);
    }
  });
  const auto keys = [](const AttentionTile& tile) {
    return std::min<int64_t>(tile.context, tile.past_segment * kSegmentTokens) -
           tile.first_segment * kSegmentTokens;
  };
  const auto before = [&](const AttentionTile& a, const AttentionTile& b) {
    if (keys(a) != keys(b)) return keys(a) > keys(b);
    if (a.sequence != b.sequence) return a.sequence < b.sequence;
    return a.first != b.first ? a.first < b.first : a.first_segment < b.first_segment;
  };
  std::sort(tiles.begin(), tiles.begin() + wide, before);
  std::sort(tiles.begin() + wide, tiles.begin() + wide + narrow, before);
  counts.wide = static_cast<int32_t>(wide);
  counts.narrow = static_cast<int32_t>(narrow);
  return counts;
}

}  // namespace sluice::kernels::cuda
