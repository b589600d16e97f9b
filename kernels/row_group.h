// A group of adjacent rows that are multiplied by the same matrix: one of several of a layer, or
// the matrix of an adapter.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// The rows [first_row, first_row + count), which are multiplied by matrix `matrix`: their position
// in a position-wise layer, their expert in a layer of experts, or the number of their adapter in
// the step. The groups of a product are disjoint and their rows ascend. A group of experts may be
// empty.
struct RowGroup {
  int32_t matrix;
  int32_t first_row;
  int32_t count;
};

}  // namespace sluice::kernels
