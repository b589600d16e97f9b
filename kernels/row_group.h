// A group of adjacent rows that are multiplied by the same matrix of a layer with several matrices.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// The rows [first_row, first_row + count), which are multiplied by matrix `matrix`: their position
// in a position-wise layer, or their expert in a layer of experts. The groups of a product are
// disjoint and ascend in both fields. A group of experts may be empty.
struct RowGroup {
  int32_t matrix;
  int32_t first_row;
  int32_t count;
};

}  // namespace sluice::kernels
