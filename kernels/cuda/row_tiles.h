// The tile list of the projections: row groups divided into tiles of at most kTileRows rows, on the
// device, once per step.
#pragma once

#include <cstdint>

#include "kernels/row_group.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kTileRows = 64;

// The tiles as a projection reads them: rows of one matrix, at most kTileRows each.
struct RowTiles {
  const RowGroup* tiles;  // [*count]
  const int32_t* count;
  int32_t capacity;
};

struct RowTilesArgs {
  const RowGroup* groups;      // [*group_count]
  const int32_t* group_count;  // on the device
  RowGroup* tiles;             // the bucket's number of rows is enough capacity
  int32_t* tile_count;
};

void BuildRowTiles(Stream& stream, const RowTilesArgs& args);

}  // namespace sluice::kernels::cuda
