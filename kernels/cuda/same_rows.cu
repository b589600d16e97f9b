#include "kernels/cuda/same_rows.h"

#include "kernels/cuda/vector.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = 256, kBlocksPerProcessor = 8;

// Widening to float keeps bits apart that are different in T.
__device__ inline bool Same(float a, float b) {
  uint32_t bits_of_a, bits_of_b;
  __builtin_memcpy(&bits_of_a, &a, sizeof(a));
  __builtin_memcpy(&bits_of_b, &b, sizeof(b));
  return bits_of_a == bits_of_b || (a != a && b != b);
}

// The arguments of the op, and the number of neighbouring lanes that share a row, a power of two.
template <typename T>
struct SharedRows {
  SameRowsArgs<T> op;
  int32_t team;
};

// A block compares several rows at a time, kWidth elements at a time.
template <typename T, int32_t kWidth>
__global__ void __launch_bounds__(kThreads) SameRowsKernel(SharedRows<T> args) {
  const SameRowsArgs<T>& op = args.op;
  const int32_t team = args.team, member = ThreadIndex() % team, rows = kThreads / team;
  const uint32_t lanes = ~uint32_t{0} >> (kWarp - team) << (Lane() / team * team);
  for (int32_t first = BlockIndex() * rows; first < op.rows; first += GridBlocks() * rows) {
    const int32_t r = first + ThreadIndex() / team;
    bool same = true;
    if (r < op.rows) {
      const T* const values = op.values + int64_t{r} * op.width;
      const T* const expected = op.expected + int64_t{op.places[r]} * op.width;
      for (int32_t i = member * kWidth; i < op.width; i += team * kWidth) {
        const Floats<kWidth> a = Load<kWidth>(values + i), b = Load<kWidth>(expected + i);
        SLUICE_UNROLL
        for (int32_t j = 0; j < kWidth; ++j) same &= Same(a.at[j], b.at[j]);
      }
    }
    const uint32_t other = Ballot(!same);
    if (member == 0 && (other & lanes) != 0) op.differing[r] += 1;
  }
}

template <typename T, int32_t kWidth>
const Kernel kSameRows = KernelOf(kWidth > 1 ? "SameRows" : "SameRowsUnaligned",
                                  &SameRowsKernel<T, kWidth>);

}  // namespace

template <typename T>
void SameRows(Stream& stream, const SameRowsArgs<T>& args) {
  const bool aligned =
      RowsAligned(args.values, args.width) && RowsAligned(args.expected, args.width);
  const int32_t packs = aligned ? args.width / kCopyElements<T> : args.width;
  int32_t team = 1;
  while (team < kWarp && team < packs) team *= 2;
  const int32_t at_a_time = kThreads / team;
  Launch(stream, aligned ? kSameRows<T, kCopyElements<T>> : kSameRows<T, 1>,
         {PersistentBlocks(stream, (args.rows + at_a_time - 1) / at_a_time, kBlocksPerProcessor),
          kThreads},
         SharedRows<T>{args, team});
}

template void SameRows(Stream&, const SameRowsArgs<float>&);
template void SameRows(Stream&, const SameRowsArgs<BFloat16>&);

}  // namespace sluice::kernels::cuda
