// The inner kernel of products with states in double, once for each instruction set.
#pragma once

#include <cstdint>

namespace sluice::kernels::simd {

struct StateProducts {
  const float* row;
  int64_t width;  // of the row
  const double* states;
  int64_t stride;  // from one state to the next
  int64_t count;   // of states
  double* sums;    // [count]; each is increased by the product with its state
};

using StateProductsKernel = void (*)(const StateProducts& products);

void StateProductsPortable(const StateProducts& products);
void StateProductsAvx2(const StateProducts& products);
void StateProductsAvx512(const StateProducts& products);

}  // namespace sluice::kernels::simd
