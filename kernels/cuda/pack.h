// Converts stored weights on the device, and stores them in the layouts of the other kernels. The
// numbers equal Narrow<T>(LoadAsFloat(...)) on the host, bit for bit.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/weight_layout.h"
#include "kernels/dtype.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

template <typename T>
struct ConvertArgs {
  const void* in;  // [count] of `dtype`, 16-byte aligned
  DType dtype;
  int64_t count;
  T* out;  // [count], 16-byte aligned
};

// Computes out[i] = in[i].
template <typename T>
void Convert(Stream& stream, const ConvertArgs<T>& args);

template <typename T>
struct TransposeArgs {
  const void* in;  // [rows, in_stride] of `dtype`, 16-byte aligned
  DType dtype;
  int64_t rows, columns;
  int64_t in_stride;  // from row to row, at least `columns`; a multiple of 16 bytes
  T* out;             // [columns, out_stride]
  int64_t out_stride;
};

// Computes out[c][r] = in[r][c]. Reads 16 bytes at a time, and also writes 16 bytes at a time if
// `out` and `out_stride` are aligned to them.
template <typename T>
void Transpose(Stream& stream, const TransposeArgs<T>& args);

// Returns `columns` rounded up to a valid TransposeArgs::in_stride.
constexpr int64_t TransposeStride(int64_t columns, DType dtype) {
  const int64_t unit = 16 / DTypeBytes(dtype);
  return (columns + unit - 1) / unit * unit;
}

template <typename T>  // float, BFloat16, int8_t
struct PackArgs {
  // [matrices, k, n]; in int8 [matrices, n, k], 8-byte aligned, with k a multiple of
  // kSliceDepth<int8_t>, as QuantizeColumns writes them (kernels/cuda/int8.h).
  const T* in;
  int64_t matrices;
  int32_t k;
  int32_t n;
  T* out;  // [PackedElements<T>(matrices, k, n)], 16-byte aligned; must not overlap `in`
};

// Arranges matrices in slices of panels, as kernels/cuda/packed.h describes.
template <typename T>
void PackWeights(Stream& stream, const PackArgs<T>& args);
// Arranges the matrices in slices for warpgroups (kernels/cuda/weight_layout.h). Requires that n is
// a multiple of 8, and that `in` is aligned.
void PackForWarpgroups(Stream& stream, const PackArgs<BFloat16>& args);
// Arranges the matrices in `layout`, which must not be kPlain. kWarpgroups requires bfloat16.
template <typename T>
void PackAs(Stream& stream, WeightLayout layout, const PackArgs<T>& args) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (layout == WeightLayout::kWarpgroups) return PackForWarpgroups(stream, args);
  }
  PackWeights<T>(stream, args);
}

}  // namespace sluice::kernels::cuda
