// Mixture of experts: the choice of the experts of each row, the copies of rows that they compute,
// and the weighted sums of their results.
//
// A row is computed by the `chosen` experts with the largest logits. Of equal logits, the one of
// the lower expert is larger. The copies of all rows are ordered by expert, then by row, so each
// expert has one group of adjacent rows (kernels/row_group.h). Every group has all rows that chose
// the expert: no expert has a capacity.
//
// Batch invariance: the choice, the weights and the sum of a row depend on this row only. The sum
// adds the row's experts in ascending order. Sums have the same bits under all profiles; weights
// have the bits of the profile's exponential function.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/context.h"
#include "kernels/route_softmax.h"
#include "kernels/row_group.h"

namespace sluice::kernels {

struct RouteSizes {
  int64_t rows;
  int64_t experts;
  int64_t chosen;  // in [1, min(experts, kMaxChosen)]
};

// A view of memory for the routes of the rows of a step. The lists of a row ascend by expert.
struct Routes {
  // Requires Bytes(sizes) bytes at `memory`, aligned to 4 bytes.
  Routes(const RouteSizes& sizes, std::byte* memory);
  static int64_t Bytes(const RouteSizes& sizes);

  RouteSizes sizes;
  RowGroup* groups;  // [experts], by ascending expert; groups without rows have a count of 0
  float* weights;    // [rows, chosen]
  int32_t* places;   // [rows, chosen], the places of the row's copies among all copies
};

// Chooses the experts of the rows by their logits, [rows, experts].
void Route(const Context& context, const float* logits, RouteSoftmax softmax, const Routes& routes);

// Copies x [rows, dim] to the places of the rows' copies: out [rows * chosen, dim].
void CopyToPlaces(const Context& context, const Routes& routes, const float* x, int64_t dim,
                  float* out);

// Computes out = (out +) sum of weight * x[place] over the copies of each row, + bias.
struct CombineArgs {
  const float* x;     // [rows * chosen, dim]
  const float* bias;  // [dim], or nullptr
  int64_t dim;
  bool accumulate;
  float* out;  // [rows, dim], not x
};

void Combine(const Context& context, const Routes& routes, const CombineArgs& args);

}  // namespace sluice::kernels
