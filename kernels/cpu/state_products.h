// Products of a row of weights with states in double, for outputs that the host computes.
//
// A product is summed in 8 lanes. Lane l adds row[i] * state[i] for i = l, l + 8, ... in ascending
// order, and then the lanes are added in ascending order. Each product and each sum is rounded to
// double. A product therefore has the same bits with every instruction set and next to any number
// of other states.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/profile.h"

namespace sluice::kernels {

// Adds the product of `row` with the first row.size() values of each state to `sums`. State i
// begins at states[i * stride], and `sums` has one value for each state. `profile` selects the
// instructions and must be supported.
void AddStateProducts(Profile profile, std::span<const float> row, const double* states,
                      int64_t stride, std::span<double> sums);

}  // namespace sluice::kernels
