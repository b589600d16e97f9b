// The tile list of the projections: row groups divided into tiles of at most kTileRows rows. The
// host writes it once per step. The device writes the tiles of experts (kernels/cuda/route.h).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/row_group.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kTileRows = 64;

// The tiles as a projection reads them: rows of one matrix, at most kTileRows each.
struct RowTiles {
  const RowGroup* tiles;  // [*count]
  const int32_t* count;   // on the device
  int32_t capacity;
  // Whether all tiles are of one group. Then each tile but the last is full and continues in the
  // next one.
  bool one_group = false;
  int32_t max_rows = kTileRows;  // of a tile
};

// Returns the most rows that a tile can have if there are `rows` rows in all.
constexpr int32_t MaxTileRows(int64_t rows) {
  return rows < kTileRows ? static_cast<int32_t>(rows) : kTileRows;
}

// Returns the most tiles that groups with `rows` rows in all can have.
constexpr int64_t MaxRowTiles(int64_t rows, int64_t groups) {
  const int64_t most = rows / kTileRows + groups;
  return most < rows ? most : rows;
}

// Writes the tiles of the groups, in their order, to `tiles` [MaxRowTiles], and returns their
// number. Groups without rows have no tiles.
inline int32_t CutIntoRowTiles(std::span<const RowGroup> groups, RowGroup* tiles) {
  int32_t count = 0;
  for (const RowGroup& group : groups) {
    for (int32_t first = 0; first < group.count; first += kTileRows) {
      const int32_t left = group.count - first;
      tiles[count++] = {group.matrix, group.first_row + first, left < kTileRows ? left : kTileRows};
    }
  }
  return count;
}

}  // namespace sluice::kernels::cuda
