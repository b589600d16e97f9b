// The tile list of attention: the queries of each sequence divided into tiles. The host writes it
// once per step for all layers.
//
// The queries of a sequence that share a KV head are packed: query i is row i / group of the step's
// rows of that sequence and the KV head's query head i % group, group = q_heads / kv_heads.
#pragma once

#include <cstdint>
#include <span>

namespace sluice::kernels::cuda {

inline constexpr int32_t kTileQueries = 64;

// One sequence of the step batch. The keys of positions [0, first_position + count) are in the
// cache when attention runs.
struct AttentionSequence {
  int32_t first_position;
  int32_t count;         // rows of this step
  int32_t rows_offset;   // offset of its row indices, which are by ascending position
  int32_t pages_offset;  // offset of its page ids
};

// The packed queries [first, first + kTileQueries) of the sequence, or fewer at its end.
struct AttentionTile {
  int32_t sequence;
  int32_t first;
};

struct AttentionTiles {
  const AttentionTile* tiles;  // [*count]
  const int32_t* count;        // on the device
  int32_t capacity;
};

// Returns the most tiles that a step within these sizes can have.
constexpr int64_t MaxAttentionTiles(int64_t rows, int64_t sequences, int64_t group) {
  return rows * group / kTileQueries + sequences;
}

// Writes the tiles of the sequences, in their order, to `tiles` [MaxAttentionTiles], and returns
// their number. A sequence is any struct with the `count` of AttentionSequence. `group` is
// q_heads / kv_heads.
template <typename Sequences>
int32_t CutIntoAttentionTiles(const Sequences& sequences, int32_t group, AttentionTile* tiles) {
  int32_t count = 0, sequence = 0;
  for (const auto& each : sequences) {
    const int32_t queries = each.count * group;
    for (int32_t first = 0; first < queries; first += kTileQueries) {
      tiles[count++] = {sequence, first};
    }
    ++sequence;
  }
  return count;
}

}  // namespace sluice::kernels::cuda
