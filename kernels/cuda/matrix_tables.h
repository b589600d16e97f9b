// Matrices of a product that are in places of their own, such as the matrices of adapters.
#pragma once

#include <cstdint>

namespace sluice::kernels::cuda {

struct PlacedMatrix {
  const void* weight;  // [k, n], 16-byte aligned; packed for products (kernels/cuda/packed.h)
  int32_t k;
  int32_t n;  // 0 if there is no matrix
};

// The matrices of a step, on the device: matrix m is tables[m][place]. A captured graph has the
// address of `tables`, and each step writes the pointers.
struct MatrixTables {
  const PlacedMatrix* const* tables;
  int32_t place;
  // At least 1 and the n of each matrix; nullptr: the product's n.
  const int32_t* max_n = nullptr;
};

}  // namespace sluice::kernels::cuda
