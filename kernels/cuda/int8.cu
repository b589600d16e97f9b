#include "kernels/cuda/int8.h"

#include <cmath>

#include "kernels/cuda/int8_math.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/row_walk.h"
#include "kernels/cuda/vector.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = 256;
constexpr int32_t kBlocksPerProcessor = 8;

struct RowShared {
  float scratch[kWarp];
};

// Reads the elements of a row of k from `first` on. Elements past the end of the row are zeros.
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

// A block quantises one row at a time.
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

// A thread handles one column at a time; neighbouring threads read neighbouring columns.
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

// A thread writes a whole sector at a time, which is 32 depths of a column. Neighbouring threads
// read neighbouring columns.
__global__ void QuantizeColumnsKernel(QuantizeColumnsArgs args) {
  constexpr int32_t kDepths = 2 * kCopyElements<int8_t>;
  const int32_t stride = Int8Stride(args.k), parts = stride / kDepths;
  const int64_t all = args.matrices * parts * args.n;
  for (int64_t i = int64_t{BlockIndex()} * kThreads + ThreadIndex(); i < all;
       i += int64_t{GridBlocks()} * kThreads) {
    const int64_t matrix = i / args.n / parts, column = matrix * args.n + i % args.n;
    const auto first = static_cast<int32_t>(i / args.n % parts) * kDepths;
    const float factor = args.factors == nullptr ? 1.0f : args.factors[column];
    const float* in = args.in + (matrix * args.k + first) * args.n + i % args.n;
    SLUICE_UNROLL
    for (int32_t half = 0; half < 2; ++half) {
      Pack<int8_t> codes = {};
      SLUICE_UNROLL
      for (int32_t j = 0; j < kDepths / 2; ++j, in += args.n) {
        if (first + half * (kDepths / 2) + j < args.k) codes.at[j] = ToInt8(*in, factor);
      }
      StoreWhole(codes, args.out + column * stride + first + half * (kDepths / 2));
    }
  }
}

template <typename T, int32_t kWidth>
__global__ void ScaleSumsKernel(OverRows<ScaleSumsArgs<T>> args) {
  const ScaleSumsArgs<T>& op = args.op;
  const RowWalk walk(args);
  const int32_t column = walk.item * kWidth;
  if (column >= op.n) return;
  const auto scales = Load<kWidth>(op.scales + column);
  Floats<kWidth> bias = {};
  if (op.bias != nullptr) bias = Load<kWidth>(op.bias + column);
  const int32_t live = *op.rows.count - op.first;
  const int32_t rows = live < op.rows.capacity ? live : op.rows.capacity;
  for (int32_t r = walk.row; r < rows; r += walk.step) {
    const auto sums = LoadWhole<Pack<int32_t, kWidth>>(op.sums + int64_t{r} * op.n + column);
    Floats<kWidth> values;
    const auto add = [&](const Floats<kWidth>& more) {
      SLUICE_UNROLL
      for (int32_t i = 0; i < kWidth; ++i) values.at[i] += more.at[i];
    };
    const float row_scale = op.row_scales[op.first + r];
    SLUICE_UNROLL
    for (int32_t i = 0; i < kWidth; ++i) {
      values.at[i] = ScaleSum(static_cast<float>(sums.at[i]), row_scale, scales.at[i]);
    }
    T* const out = op.out + int64_t{op.first + r} * op.n + column;
    if (op.bias != nullptr) add(bias);
    if (op.accumulate) add(Load<kWidth>(out));
    Store(values, out);
  }
}

template <typename T, bool kAligned>
const Kernel kQuantizeRows = KernelOf(kAligned ? "QuantizeRows" : "QuantizeRowsUnaligned",
                                      &QuantizeRowsKernel<T, kAligned>);
const Kernel kScaleColumns = KernelOf("ScaleColumns", &ScaleColumnsKernel);
const Kernel kQuantizeColumns = KernelOf("QuantizeColumns", &QuantizeColumnsKernel);
template <typename T, int32_t kWidth>
const Kernel kScaleSums = KernelOf(kWidth > 1 ? "ScaleSums" : "ScaleSumsUnaligned",
                                   &ScaleSumsKernel<T, kWidth>);

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

void QuantizeColumns(Stream& stream, const QuantizeColumnsArgs& args) {
  const int64_t each = int64_t{kThreads} * 2 * kCopyElements<int8_t>;
  const int64_t blocks = (args.matrices * args.n * Int8Stride(args.k) + each - 1) / each;
  Launch(stream, kQuantizeColumns,
         {PersistentBlocks(stream, blocks, kBlocksPerProcessor), kThreads}, args);
}

template <typename T>
void ScaleSums(Stream& stream, const ScaleSumsArgs<T>& args) {
  constexpr int32_t kWidth = kCopyElements<int32_t>;
  const auto in_fours = [](const T* array) {
    return reinterpret_cast<uintptr_t>(array) % (kWidth * sizeof(T)) == 0;
  };
  if (RowsAligned(args.sums, args.n) && RowsAligned(args.scales, args.n) && in_fours(args.bias) &&
      in_fours(args.out)) {
    return LaunchOverRows(stream, kScaleSums<T, kWidth>, args, args.n / kWidth);
  }
  LaunchOverRows(stream, kScaleSums<T, 1>, args, args.n);
}

template void ScaleSums(Stream&, const ScaleSumsArgs<float>&);
template void ScaleSums(Stream&, const ScaleSumsArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
