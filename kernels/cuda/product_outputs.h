// The outputs of products (kernels/cuda/projection.h), two neighbouring columns at a time. Device
// code only, except for OperandsOf and IsAligned.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/int8_math.h"
#include "kernels/cuda/product_loop.h"
#include "kernels/cuda/projection.h"
#include "kernels/cuda/vector.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

template <typename T, typename Out, typename Operand>
SLUICE_HOST_DEVICE Operands<Operand> OperandsOf(const ProjectionArgs<T, Out, Operand>& args) {
  return {args.x, args.weight, args.k, args.n, args.tiles};
}

// Returns whether all rows have the alignment that the fast kernels need.
template <typename T, typename Out, typename Operand>
bool IsAligned(const ProjectionArgs<T, Out, Operand>& args) {
  const auto in_twos = [](const auto* array, int64_t stride) {
    return stride % 2 == 0 && reinterpret_cast<uintptr_t>(array) % (2 * sizeof(*array)) == 0;
  };
  return RowsAligned(args.x, args.k) && in_twos(args.bias, args.bias_stride) &&
         in_twos(args.out, args.n) && in_twos(args.gate, args.n) && in_twos(args.scales, args.n);
}

// Reads the two neighbouring elements at `from`, or only the first.
template <bool kBoth, typename T>
__device__ inline Floats<2> LoadTwo(const T* from, bool both) {
  if constexpr (kBoth) {
    return Load<2>(from);
  } else {
    return {{Widen(from[0]), both ? Widen(from[1]) : 0.0f}};
  }
}
template <bool kBoth, typename T>
__device__ inline void StoreTwo(const Floats<2>& values, T* to, bool both) {
  if constexpr (kBoth) {
    Store<2>(values, to);
  } else {
    to[0] = Narrow<T>(values.at[0]);
    if (both) to[1] = Narrow<T>(values.at[1]);
  }
}

// The columns and output elements of a thread's sums.
template <typename T, typename Out, typename Operand, typename TileSums>
struct Place {
  const ProjectionArgs<T, Out, Operand>& args;
  const RowGroup& rows;
  int32_t first_column;

  // Calls f(column, element, both) for the sums At(r, i, c) within the matrix: for two neighbouring
  // elements, or for one at the end of a row.
  template <typename Function>
  __device__ void At(int32_t r, int32_t i, int32_t c, Function f) const {
    const int32_t row = TileSums::Row(r, i), column = first_column + TileSums::Column(c);
    if (row >= rows.count || column >= args.n) return;
    f(column, int64_t{rows.first_row + row} * args.n + column, column + 1 < args.n);
  }

  // Returns the outputs for the sums of a row and of one or two columns, before they are added to
  // others and rounded.
  template <bool kAligned>
  __device__ Floats<2> Output(Floats<2> sums, int32_t r, int32_t i, int32_t column,
                              bool both) const {
    if constexpr (std::is_same_v<Operand, int8_t>) {
      const float row_scale = args.row_scales[rows.first_row + TileSums::Row(r, i)];
      const float* const scales = args.scales + int64_t{rows.matrix} * args.n;
      const Floats<2> of_columns = LoadTwo<kAligned>(scales + column, both);
      for (int32_t j = 0; j < 2; ++j) {
        sums.at[j] = ScaleSum(sums.at[j], row_scale, of_columns.at[j]);
      }
    }
    if (args.bias != nullptr) {
      const T* const bias = args.bias + rows.matrix * args.bias_stride;
      const Floats<2> more = LoadTwo<kAligned>(bias + column, both);
      for (int32_t j = 0; j < 2; ++j) sums.at[j] += more.at[j];
    }
    return sums;
  }
};

}  // namespace sluice::kernels::cuda
