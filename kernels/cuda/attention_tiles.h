// The tile list of attention: the queries of each sequence divided into tiles, on the device, once
// per step for all layers.
//
// The queries of a sequence that share a KV head are packed: query i is row i / group of the step's
// rows of that sequence and the KV head's query head i % group, group = q_heads / kv_heads.
#pragma once

#include <cstdint>

#include "kernels/simt/stream.h"

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
  const int32_t* count;
  int32_t capacity;
};

// Returns the most tiles that a step within these sizes can have.
constexpr int64_t MaxAttentionTiles(int64_t rows, int64_t sequences, int64_t group) {
  return rows * group / kTileQueries + sequences;
}

struct AttentionTilesArgs {
  const AttentionSequence* sequences;  // [*sequence_count]
  const int32_t* sequence_count;       // on the device
  int32_t group;
  AttentionTile* tiles;  // [MaxAttentionTiles]
  int32_t* tile_count;
};

void BuildAttentionTiles(Stream& stream, const AttentionTilesArgs& args);

}  // namespace sluice::kernels::cuda
