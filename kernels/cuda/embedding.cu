#include "kernels/cuda/embedding.h"

#include "kernels/cuda/row_walk.h"
#include "kernels/cuda/vector.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kPlacedThreads = 128;

// Returns the entry of a row, or a negative number if it has none.
__device__ inline int32_t EntryOf(const int32_t* ids, const SampleOutcome* drawn, int64_t row) {
  const int32_t entry = ids == nullptr ? 0 : ids[row];
  return entry < -1 ? drawn[-2 - entry].token : entry;
}

template <typename T, int32_t kWidth>
__global__ void EmbedKernel(OverRows<EmbedArgs<T>> args) {
  const EmbedArgs<T>& op = args.op;
  const RowWalk walk(args);
  const int32_t column = walk.item * kWidth, rows = *op.rows.count;
  if (column >= op.dim) return;
  for (int32_t r = walk.row; r < rows; r += walk.step) {
    const int32_t entry = EntryOf(op.ids, op.drawn, r);
    if (entry < 0) continue;
    T* const to = op.out + int64_t{r} * op.dim + column;
    auto values = Load<kWidth>(op.table + int64_t{entry} * op.dim + column);
    SLUICE_UNROLL
    for (int32_t i = 0; i < kWidth; ++i) values.at[i] *= op.scale;
    if (op.accumulate) {
      const auto before = Load<kWidth>(to);
      SLUICE_UNROLL
      for (int32_t i = 0; i < kWidth; ++i) values.at[i] += before.at[i];
    }
    Store(values, to);
  }
}

// A warp copies a row.
template <typename T>
__global__ void __launch_bounds__(kPlacedThreads) EmbedPlacedKernel(PlacedEmbedArgs<T> args) {
  for (int32_t t = BlockIndex(); t < *args.tiles.count; t += GridBlocks()) {
    const RowGroup rows = args.tiles.tiles[t];
    const PlacedMatrix& table = args.tables.tables[rows.matrix][args.tables.place];
    const T* const values = static_cast<const T*>(table.weight);
    for (int32_t i = Warp(); i < rows.count; i += kPlacedThreads / kWarp) {
      const int64_t row = rows.first_row + i;
      const int64_t entry = EntryOf(args.ids, args.drawn, row);
      for (int32_t c = Lane(); c < table.n; c += kWarp) {
        args.out[row * args.stride + c] = entry < 0 ? Narrow<T>(0.0f) : values[entry * table.n + c];
      }
    }
  }
}

template <typename T, int32_t kWidth>
__global__ void TakeInputKernel(OverRows<InputArgs<T>> args) {
  const InputArgs<T>& op = args.op;
  const RowWalk walk(args);
  const int32_t column = walk.item * kWidth, rows = *op.rows.count;
  if (column >= op.dim) return;
  for (int32_t r = walk.row; r < rows; r += walk.step) {
    const int64_t place = int64_t{r} * op.dim + column;
    Store(Load<kWidth>(op.in + place), op.out + place);
  }
}

template <typename T, int32_t kWidth>
const Kernel kEmbed = KernelOf(kWidth > 1 ? "Embed" : "EmbedUnaligned", &EmbedKernel<T, kWidth>);
template <typename T>
const Kernel kEmbedPlaced = KernelOf("EmbedPlaced", &EmbedPlacedKernel<T>);
template <typename T, int32_t kWidth>
const Kernel kTakeInput = KernelOf(kWidth > 1 ? "TakeInput" : "TakeInputUnaligned",
                                   &TakeInputKernel<T, kWidth>);

}  // namespace

template <typename T>
void Embed(Stream& stream, const EmbedArgs<T>& args) {
  LaunchOverElements<T>(stream, kEmbed<T, kCopyElements<T>>, kEmbed<T, 1>, args, args.dim,
                        RowsAligned(args.table, args.dim) && RowsAligned(args.out, args.dim));
}

template void Embed(Stream&, const EmbedArgs<float>&);
template void Embed(Stream&, const EmbedArgs<BFloat16>&);

template <typename T>
void EmbedPlaced(Stream& stream, const PlacedEmbedArgs<T>& args) {
  Launch(stream, kEmbedPlaced<T>,
         {PersistentBlocks(stream, args.tiles.capacity, 4), kPlacedThreads}, args);
}

template void EmbedPlaced(Stream&, const PlacedEmbedArgs<float>&);
template void EmbedPlaced(Stream&, const PlacedEmbedArgs<BFloat16>&);

template <typename T>
void TakeInput(Stream& stream, const InputArgs<T>& args) {
  LaunchOverElements<T>(stream, kTakeInput<T, kCopyElements<T>>, kTakeInput<T, 1>, args, args.dim,
                        RowsAligned(args.in, args.dim) && RowsAligned(args.out, args.dim));
}

template void TakeInput(Stream&, const InputArgs<float>&);
template void TakeInput(Stream&, const InputArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
