#include "kernels/cuda/int8.h"

#include <cmath>

#include "kernels/cuda/int8_math.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/vector.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = 256;
constexpr int32_t kBlocksPerProcessor = 8;

struct RowShared {
  float scratch[kWarp];
};

// Reads the elements of a row of k from the `first` on; zeros stand for those behind the row.
template <bool kAligned, typename T>
__device__ Floats<kCopyElements<T>> ReadPart(const T* row, int32_t first, int32_t k) {
  constexpr int32_t kEach = kCopyElements<T>;
  Floats<kEach> values = {};
  if constexpr (kAligned) {
    if (first < k) values = Load<kEach>(row + first);
  } else {
    SLUICE_UNROLL
    for (int32_t j = 0; j < kEach; ++j) {
      if (first + j < k) values.at[j] = Widen(row[first + j]);
    }
  }
  return values;
}

// A block quantises a row at a time.
template <typename T, bool kAligned>
__global__ void QuantizeRowsKernel(QuantizeRowsArgs<T> args) {
  constexpr int32_t kEach = kCopyElements<T>;
  auto& shared = SharedMemory<RowShared>();
  WaitForPrevious();
  const int32_t first = ThreadIndex() * kEach, step = kThreads * kEach;
  const int32_t stride = Int8Stride(args.k), rows = *args.rows.count;
  for (int32_t r = BlockIndex(); r < rows; r += GridBlocks()) {
    const T* const x = args.x + int64_t{r} * args.k;
    float largest = 0;
    for (int32_t i = first; i < args.k; i += step) {
      const auto values = ReadPart<kAligned>(x, i, args.k);
      SLUICE_UNROLL
      for (int32_t j = 0; j < kEach; ++j) largest = Larger(largest, values.at[j]);
    }
    const Int8Scale scale(BlockReduce(largest, Max(), shared.scratch));
    for (int32_t i = first; i < stride; i += step) {
      const auto values = ReadPart<kAligned>(x, i, args.k);
      Pack<int8_t, kEach> codes;
      SLUICE_UNROLL
      for (int32_t j = 0; j < kEach; ++j) codes.at[j] = ToInt8(values.at[j], scale.factor);
      StoreWhole(codes, args.out + int64_t{r} * stride + i);
    }
    if (ThreadIndex() == 0) args.scales[r] = scale.scale;
  }
}

// A thread has a column at a time; neighbouring threads read neighbouring columns.
__global__ void ScaleColumnsKernel(ScaleColumnsArgs args) {
  const int64_t columns = args.matrices * args.n;
  for (int64_t column = int64_t{BlockIndex()} * kThreads + ThreadIndex(); column < columns;
       column += int64_t{GridBlocks()} * kThreads) {
    const float* in = args.in + column / args.n * args.k * args.n + column % args.n;
    float largest = 0;
    for (int32_t i = 0; i < args.k; ++i, in += args.n) largest = Larger(largest, *in);
    const Int8Scale scale(largest);
    args.scales[column] = scale.scale;
    args.factors[column] = scale.factor;
  }
}

template <typename T, bool kAligned>
const Kernel kQuantizeRows = KernelOf(kAligned ? "QuantizeRows" : "QuantizeRowsUnaligned",
                                      &QuantizeRowsKernel<T, kAligned>);
const Kernel kScaleColumns = KernelOf("ScaleColumns", &ScaleColumnsKernel);

}  // namespace

template <typename T>
void QuantizeRows(Stream& stream, const QuantizeRowsArgs<T>& args) {
  const Kernel& kernel =
      RowsAligned(args.x, args.k) ? kQuantizeRows<T, true> : kQuantizeRows<T, false>;
  Launch(stream, kernel,
         {.blocks = PersistentBlocks(stream, args.rows.capacity, kBlocksPerProcessor),
          .threads = kThreads,
          .shared_bytes = sizeof(RowShared),
          .overlaps_previous = true},
         args);
}

template void QuantizeRows(Stream&, const QuantizeRowsArgs<float>&);
template void QuantizeRows(Stream&, const QuantizeRowsArgs<BFloat16>&);

void ScaleColumns(Stream& stream, const ScaleColumnsArgs& args) {
  const int64_t blocks = (args.matrices * args.n + kThreads - 1) / kThreads;
  Launch(stream, kScaleColumns, {PersistentBlocks(stream, blocks, kBlocksPerProcessor), kThreads},
         args);
}

}  // namespace sluice::kernels::cuda
