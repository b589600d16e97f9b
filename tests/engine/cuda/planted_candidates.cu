#include "tests/engine/cuda/planted_candidates.h"

#include <cmath>

#include "kernels/cuda/bfloat16.h"
#include "kernels/simt/simt.h"

namespace sluice::testing {
namespace {

using kernels::cuda::BFloat16;
using kernels::cuda::BlockIndex;
using kernels::cuda::Kernel;
using kernels::cuda::KernelOf;
using kernels::cuda::kWarp;
using kernels::cuda::Narrow;
using kernels::cuda::SyncWarp;
using kernels::cuda::ThreadIndex;
using kernels::cuda::Widen;

constexpr int32_t kManyRows = 12;

template <typename T>
struct FaultArgs {
  RowFault fault;
  int32_t rows, width;
  T* out;
};

// Returns a neighbour of x, as another order of sums would give; x itself where a neighbour is
// farther from the exact sum than rounding twice.
__device__ float Flipped(float x) { return std::nextafter(x, 2 * x); }
__device__ BFloat16 Flipped(BFloat16 x) {
  const bool close = (x.bits & 0x40) != 0;  // one bit is a small part of a large significand
  return {static_cast<uint16_t>(close ? x.bits ^ 1 : x.bits)};
}

// Each thread has the columns of its own, from the last row to the first.
template <typename T>
__global__ void FaultKernel(FaultArgs<T> args) {
  const RowFault fault = args.fault;
  for (int32_t column = ThreadIndex(); column < args.width; column += kWarp) {
    for (int32_t row = args.rows - 1; row >= 0; --row) {
      T& value = args.out[int64_t{row} * args.width + column];
      const float wide = Widen(value);
      const bool flips =
          fault == RowFault::kOtherOrderOfManyRows ? args.rows > kManyRows : row % 3 == 1;
      if (fault == RowFault::kOtherOrderOfManyRows || fault == RowFault::kOtherOrderByPlace) {
        if (flips && std::isfinite(wide)) value = Flipped(value);
      } else if (fault == RowFault::kWrongValue) {
        if (row == 0 && column == 0) value = Narrow<T>(1.25f * wide + 1);
      } else if (fault == RowFault::kDropsNaN) {
        if (!std::isfinite(wide)) value = Narrow<T>(0.0f);
      } else if (fault == RowFault::kSpreadsNaN) {
        if (row == 0) continue;
        value = Narrow<T>(wide + 0 * Widen(args.out[int64_t{row - 1} * args.width + column]));
      }
    }
  }
}

template <typename T>
const Kernel kFault = KernelOf("Fault", &FaultKernel<T>);

}  // namespace

template <typename T>
void PlantRowFault(kernels::cuda::Stream& stream, RowFault fault, int32_t rows, int32_t width,
                   T* out) {
  if (fault == RowFault::kNone) return;
  Launch(stream, kFault<T>, {1, kWarp}, FaultArgs<T>{fault, rows, width, out});
}

template void PlantRowFault(kernels::cuda::Stream&, RowFault, int32_t, int32_t, float*);
template void PlantRowFault(kernels::cuda::Stream&, RowFault, int32_t, int32_t, BFloat16*);

}  // namespace sluice::testing
