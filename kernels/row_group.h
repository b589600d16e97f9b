// Rows of a step batch that share a position, hence a weight matrix of a position-wise layer.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// `count` rows from `first_row` on, all at `position`. Groups of one step batch are disjoint, cover
// all its rows and ascend in both fields.
struct RowGroup {
  int32_t position;
  int32_t first_row;
  int32_t count;
};

}  // namespace sluice::kernels
