// The number of rows of a step. It is known only on the device; its upper limit is the size that a
// plan was captured for.
#pragma once

#include <cstdint>

namespace sluice::kernels::cuda {

struct LiveRows {
  const int32_t* count;  // on the device; [0, capacity]
  int32_t capacity;      // bounds the grid
};

}  // namespace sluice::kernels::cuda
