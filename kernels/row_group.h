// A group of rows of a step batch that share a position, and so the weight matrix of a
// position-wise layer.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// The rows [first_row, first_row + count), all at `position`. The groups of one step batch are
// disjoint, cover all its rows and ascend in both fields.
struct RowGroup {
  int32_t position;
  int32_t first_row;
  int32_t count;
};

}  // namespace sluice::kernels
