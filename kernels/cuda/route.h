// Mixture of experts: the choice of the experts of each row, the copies of rows that they compute,
// the tiles of these copies, and the weighted sums of their results.
//
// A row is computed by the `chosen` experts with the largest logits. Of equal logits, the one of
// the lower expert is larger; a NaN is lowest. The copies of all rows are ordered by expert, then
// by row. Products read the tiles of the copies (kernels/cuda/row_tiles.h). The device makes the
// tiles and their number, so no launch contains a value that depends on the choice.
//
// Batch invariance: the choice, the weights and the sum of a row depend on this row only. The
// softmax adds the experts in an order that depends only on their number. The sum adds the row's
// experts in ascending order.
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/row_tiles.h"
#include "kernels/cuda/rows.h"
#include "kernels/route_softmax.h"
#include "kernels/row_group.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

// The numbers of copies and of tiles in a step.
struct RouteCounts {
  int32_t copies;
  int32_t tiles;
};

// The routes of the rows of a step, on the device. The lists of a row ascend by expert.
struct Routes {
  // Returns the routes of up to `max_rows` rows in `memory`, which has Bytes(...) bytes and is
  // aligned to 4 bytes.
  static Routes At(void* memory, int32_t max_rows, int32_t experts, int32_t chosen);
  static int64_t Bytes(int64_t max_rows, int64_t experts, int64_t chosen);

  // Returns the copies as rows, and their tiles.
  LiveRows copies() const { return {&counts->copies, max_rows * chosen}; }
  RowTiles row_tiles() const;

  int32_t max_rows;
  int32_t experts;  // up to kMaxExperts
  int32_t chosen;   // in [1, min(experts, kMaxChosen)]
  RouteCounts* counts = nullptr;
  RowGroup* tiles = nullptr;   // [counts->tiles], of at most kTileRows copies each
  float* weights = nullptr;    // [rows, chosen]
  int32_t* choices = nullptr;  // [rows, chosen], the experts
  int32_t* places = nullptr;   // [rows, chosen], the places of the row's copies among all copies
};

struct RouteArgs {
  const float* logits;  // [rows, experts]
  RouteSoftmax softmax;
  LiveRows rows;
  Routes routes;  // its arrays are written
};

// Chooses the experts of the rows, and makes the places and the tiles of the copies.
void Route(Stream& stream, const RouteArgs& args);

template <typename T>  // float, BFloat16
struct CopyToPlacesArgs {
  const T* x;  // [rows, dim]
  int32_t dim;
  LiveRows rows;
  Routes routes;
  T* out;  // [rows * chosen, dim], not x
};

// Copies each row to the places of its copies.
template <typename T>
void CopyToPlaces(Stream& stream, const CopyToPlacesArgs<T>& args);

// Computes out = (out +) sum of weight * x[place] over the copies of each row, + bias, in float.
template <typename T>  // float, BFloat16
struct CombineArgs {
  const T* x;     // [rows * chosen, dim]
  const T* bias;  // [dim], or nullptr
  int32_t dim;
  bool accumulate;
  LiveRows rows;
  Routes routes;
  T* out;  // [rows, dim], not x
};

template <typename T>
void Combine(Stream& stream, const CombineArgs<T>& args);

}  // namespace sluice::kernels::cuda
