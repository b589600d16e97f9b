// Inputs of products other than their operands, on a device.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/row_tiles.h"
#include "tests/support/device_lab.h"

namespace sluice::kernels::cuda {

// Returns the tiles of the groups in a list for up to `rows` tiles.
inline RowTiles TilesOn(DeviceLab& lab, const std::vector<RowGroup>& groups, int32_t rows) {
  std::vector<RowGroup> tiles(MaxRowTiles(rows, std::ssize(groups)));
  const int32_t count = CutIntoRowTiles(groups, tiles.data());
  return {lab.Put(tiles), lab.Put<int32_t>({count}), rows, groups.size() == 1};
}

}  // namespace sluice::kernels::cuda
