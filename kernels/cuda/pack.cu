#include "kernels/cuda/pack.h"

#include "base/check.h"
#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/bring.h"
#include "kernels/cuda/float16.h"
#include "kernels/cuda/vector.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = 256;
constexpr int32_t kBlocksPerProcessor = 8;
constexpr int32_t kTile = 64;  // rows and columns of a tile

template <typename S, typename T>
struct ConvertJob {
  const S* in;
  int64_t count;
  T* out;
};

template <typename S, typename T>
__global__ void ConvertKernel(ConvertJob<S, T> job) {
  constexpr int32_t kCount =
      kCopyElements < S >> kCopyElements<T> ? kCopyElements<S> : kCopyElements<T>;
  const int64_t step = int64_t{GridBlocks()} * kThreads * kCount;
  int64_t i = (int64_t{BlockIndex()} * kThreads + ThreadIndex()) * kCount;
  for (; i + kCount <= job.count; i += step) {
    Store(Load<kCount>(job.in + i), job.out + i);
  }
  for (; i < job.count; ++i) job.out[i] = Narrow<T>(Widen(job.in[i]));
}

template <typename S, typename T>
struct TransposeJob {
  const S* in;
  int64_t rows, columns, in_stride;
  T* out;
  int64_t out_stride;
  int64_t chunks;  // of 16 bytes from row to row of `out`; 0 if the rows are not aligned
};

// A tile in the order of `out`. Its rows are padded by a chunk, so that columns spread over the
// banks.
template <typename T>
struct alignas(kCopyBytes) TransposeShared {
  T tile[kTile][kTile + kCopyElements<T>];
};

// Two lanes read the 32 bytes that memory delivers at a time.
template <typename S, typename T>
__device__ void ReadTile(const TransposeJob<S, T>& job, int64_t first_row, int64_t first_column,
                         TransposeShared<T>& shared) {
  constexpr int32_t kCount = kCopyElements<S>;
  for (int32_t i = ThreadIndex(); i < kTile * kTile / kCount; i += kThreads) {
    const int32_t row = i / 2 % kTile, column = (i / (2 * kTile) * 2 + i % 2) * kCount;
    if (first_row + row >= job.rows || first_column + column >= job.columns) continue;
    const Floats<kCount> in =
        Load<kCount>(job.in + (first_row + row) * job.in_stride + first_column + column);
    SLUICE_UNROLL
    for (int32_t j = 0; j < kCount; ++j) shared.tile[column + j][row] = Narrow<T>(in.at[j]);
  }
}

template <typename S, typename T>
__device__ void WriteTile(const TransposeJob<S, T>& job, int64_t first_row, int64_t first_column,
                          const TransposeShared<T>& shared) {
  constexpr int32_t kCount = kCopyElements<T>, kChunks = kTile / kCount;
  for (int32_t i = ThreadIndex(); i < kTile * kChunks; i += kThreads) {
    const int32_t column = i / kChunks, row = i % kChunks * kCount;
    const int64_t rows = job.rows - first_row - row;
    if (rows <= 0 || first_column + column >= job.columns) continue;
    const T* const from = &shared.tile[column][row];
    if (job.chunks > 0 && rows >= kCount) {
      auto* const out = reinterpret_cast<Pack<T>*>(job.out);
      Copy<kCount>(from, out[(first_column + column) * job.chunks + (first_row + row) / kCount].at);
    } else {
      T* const to = job.out + (first_column + column) * job.out_stride + first_row + row;
      for (int32_t j = 0; j < kCount && j < rows; ++j) to[j] = from[j];
    }
  }
}

SLUICE_HOST_DEVICE inline int64_t Tiles(int64_t size) { return (size + kTile - 1) / kTile; }

template <typename S, typename T>
__global__ void TransposeKernel(TransposeJob<S, T> job) {
  auto& shared = SharedMemory<TransposeShared<T>>();
  const int64_t across = Tiles(job.columns), tiles = Tiles(job.rows) * across;
  for (int64_t i = BlockIndex(); i < tiles; i += GridBlocks()) {
    const int64_t first_row = i / across * kTile, first_column = i % across * kTile;
    ReadTile(job, first_row, first_column, shared);
    SyncBlock();
    WriteTile(job, first_row, first_column, shared);
    SyncBlock();
  }
}

// A block writes one slice at a time. Neighbouring lanes read neighbouring columns.
template <typename T>
__global__ void PackKernel(PackArgs<T> args) {
  constexpr int32_t kCount = kCopyElements<T>, kDepth = kSliceDepth<T>;
  // The depths and columns of 16 bytes of a slice. In bfloat16 these are two pairs of depths.
  constexpr int32_t kDown = sizeof(T) == 4 ? 1 : 4, kAcross = kCount / kDown;
  const auto pair = [](int32_t depth) { return depth / 2 * 8 + depth % 2; };
  constexpr int32_t kGroups = kPanelColumns / kAcross;
  const int32_t slices = Slices<T>(args.k), panels = Panels(args.n);
  const int64_t all = args.matrices * panels * slices;
  for (int64_t slice = BlockIndex(); slice < all; slice += GridBlocks()) {
    const int64_t matrix = slice / slices / panels;
    const auto panel = static_cast<int32_t>(slice / slices % panels);
    const auto first = static_cast<int32_t>(slice % slices) * kDepth;
    const T* const in = args.in + matrix * args.k * args.n;
    T* const out = args.out + slice * kSliceElements<T>;
    for (int32_t i = ThreadIndex(); i < kSliceElements<T> / kCount; i += kThreads) {
      const int32_t group = i / kGroups, column = i % kGroups * kAcross;
      const int32_t depth = kDown == 1 ? group : group / 4 * 16 + group % 4 * 2;
      Pack<T> pack;
      SLUICE_UNROLL
      for (int32_t j = 0; j < kCount; ++j) {
        const int32_t k = first + depth + pair(j / kAcross);
        const int32_t n = panel * kPanelColumns + column + j % kAcross;
        const bool inside = k < args.k && n < args.n;
        pack.at[PlaceInSlice(T{}, pair(j / kAcross), j % kAcross)] =
            inside ? in[int64_t{k} * args.n + n] : T{};
      }
      StoreWhole(pack, out + PlaceInSlice(T{}, depth, column));
    }
  }
}

// A block writes one slice at a time. Neighbouring lanes read neighbouring depths of two columns.
__global__ void PackInt8Kernel(PackArgs<int8_t> args) {
  constexpr int32_t kDown = 8, kAcross = kCopyElements<int8_t> / kDown;
  constexpr int32_t kHalf = 4, kApart = 16;  // the depths of 16 bytes of a slice are two groups
  constexpr int32_t kDepth = kSliceDepth<int8_t>, kGroups = kDepth / kDown;
  const int32_t slices = args.k / kDepth, panels = Panels(args.n);
  const int64_t all = args.matrices * panels * slices;
  for (int64_t slice = BlockIndex(); slice < all; slice += GridBlocks()) {
    const int64_t matrix = slice / slices / panels;
    const auto first_column = static_cast<int32_t>(slice / slices % panels) * kPanelColumns;
    const int8_t* const in = args.in + matrix * args.n * args.k + slice % slices * int64_t{kDepth};
    int8_t* const out = args.out + slice * kSliceElements<int8_t>;
    for (int32_t i = ThreadIndex(); i < kGroups * kPanelColumns / kAcross; i += kThreads) {
      const int32_t group = i % kGroups, column = i / kGroups * kAcross;
      const int32_t depth = group / kHalf * (2 * kApart) + group % kHalf * kHalf;
      Pack<int8_t> pack = {};
      SLUICE_UNROLL
      for (int32_t c = 0; c < kAcross; ++c) {
        const int32_t n = first_column + column + c;
        if (n >= args.n) continue;
        SLUICE_UNROLL
        for (int32_t h = 0; h < kDown / kHalf; ++h) {
          const auto from =
              LoadWhole<Pack<int8_t, kHalf>>(in + int64_t{n} * args.k + depth + h * kApart);
          SLUICE_UNROLL
          for (int32_t j = 0; j < kHalf; ++j) {
            pack.at[PlaceInSlice(int8_t{}, h * kApart + j, c)] = from.at[j];
          }
        }
      }
      StoreWhole(pack, out + PlaceInSlice(int8_t{}, depth, column));
    }
  }
}

// A block writes one slice at a time, a thread 8 columns of a depth.
__global__ void PackGroupsKernel(PackArgs<BFloat16> args) {
  const int32_t slices = GroupSlices(args.k), panels = GroupPanels(args.n);
  const int64_t all = args.matrices * panels * slices;
  for (int64_t slice = BlockIndex(); slice < all; slice += GridBlocks()) {
    const int64_t matrix = slice / slices / panels;
    const auto first_column = static_cast<int32_t>(slice / slices % panels) * kGroupSliceColumns;
    const auto first_depth = static_cast<int32_t>(slice % slices) * kGroupSliceDepth;
    const BFloat16* const in = args.in + matrix * args.k * args.n;
    BFloat16* const out = args.out + slice * kGroupSliceElements;
    constexpr int32_t kAcross = kGroupSliceColumns / kGroupMatrix;
    for (int32_t i = ThreadIndex(); i < kGroupSliceDepth * kAcross; i += kThreads) {
      const int32_t depth = i / kAcross, column = i % kAcross * kGroupMatrix;
      const int32_t k = first_depth + depth, n = first_column + column;
      Pack<BFloat16> pack = {};
      if (k < args.k && n < args.n) {
        pack = LoadWhole<Pack<BFloat16>>(in + int64_t{k} * args.n + n);
      }
      StoreWhole(pack, out + PlaceInGroupSlice(depth, column));
    }
  }
}

template <typename S, typename T>
const Kernel kConvert = KernelOf("Convert", &ConvertKernel<S, T>);
template <typename S, typename T>
const Kernel kTranspose = KernelOf("Transpose", &TransposeKernel<S, T>);

template <typename T>
const Kernel kPack = KernelOf("Pack", &PackKernel<T>);
template <>
const Kernel kPack<int8_t> = KernelOf("PackInt8", &PackInt8Kernel);
const Kernel kPackGroups = KernelOf("PackGroups", &PackGroupsKernel);

template <typename S, typename T>
void LaunchConvert(Stream& stream, const ConvertArgs<T>& args) {
  const int64_t blocks = 1 + args.count / (int64_t{kThreads} * kCopyElements<T>);
  Launch(stream, kConvert<S, T>, {PersistentBlocks(stream, blocks, kBlocksPerProcessor), kThreads},
         ConvertJob<S, T>{static_cast<const S*>(args.in), args.count, args.out});
}

template <typename S, typename T>
void LaunchTranspose(Stream& stream, const TransposeArgs<T>& args) {
  const int64_t tiles = Tiles(args.rows) * Tiles(args.columns);
  Launch(
      stream, kTranspose<S, T>,
      {PersistentBlocks(stream, tiles, kBlocksPerProcessor), kThreads, sizeof(TransposeShared<T>)},
      TransposeJob<S, T>{
          static_cast<const S*>(args.in), args.rows, args.columns, args.in_stride, args.out,
          args.out_stride,
          RowsAligned(args.out, args.out_stride) ? args.out_stride / kCopyElements<T> : 0});
}

}  // namespace

template <typename T>
void Convert(Stream& stream, const ConvertArgs<T>& args) {
  switch (args.dtype) {
    case DType::kF32:
      return LaunchConvert<float>(stream, args);
    case DType::kF16:
      return LaunchConvert<Float16>(stream, args);
    case DType::kBF16:
      return LaunchConvert<BFloat16>(stream, args);
    case DType::kI8:
      return LaunchConvert<int8_t>(stream, args);
    case DType::kI32:
      break;  // part of int4; it is refused earlier
  }
}

template void Convert(Stream&, const ConvertArgs<float>&);
template void Convert(Stream&, const ConvertArgs<BFloat16>&);

template <typename T>
void Transpose(Stream& stream, const TransposeArgs<T>& args) {
  switch (args.dtype) {
    case DType::kF32:
      return LaunchTranspose<float>(stream, args);
    case DType::kF16:
      return LaunchTranspose<Float16>(stream, args);
    case DType::kBF16:
      return LaunchTranspose<BFloat16>(stream, args);
    case DType::kI8:
      return LaunchTranspose<int8_t>(stream, args);
    case DType::kI32:
      break;
  }
}

template void Transpose(Stream&, const TransposeArgs<float>&);
template void Transpose(Stream&, const TransposeArgs<BFloat16>&);

template <typename T>
void PackWeights(Stream& stream, const PackArgs<T>& args) {
  SLUICE_CHECK((!std::is_same_v<T, int8_t>) || args.k % kSliceDepth<T> == 0);
  const int64_t slices = PackedElements<T>(args.matrices, args.k, args.n) / kSliceElements<T>;
  Launch(stream, kPack<T>, {PersistentBlocks(stream, slices, kBlocksPerProcessor), kThreads}, args);
}

template void PackWeights(Stream&, const PackArgs<float>&);
template void PackWeights(Stream&, const PackArgs<BFloat16>&);
template void PackWeights(Stream&, const PackArgs<int8_t>&);

void PackForWarpgroups(Stream& stream, const PackArgs<BFloat16>& args) {
  SLUICE_CHECK(RowsAligned(args.in, args.n));
  const int64_t slices = args.matrices * GroupPanels(args.n) * GroupSlices(args.k);
  Launch(stream, kPackGroups, {PersistentBlocks(stream, slices, kBlocksPerProcessor), kThreads},
         args);
}

}  // namespace sluice::kernels::cuda
