#include "kernels/cuda/row_reduce.h"

#include <cmath>

#include "base/check.h"
#include "kernels/cuda/reduce.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kThreads = 256;

struct RowReduceShared {
  uint64_t keys[kWarp];
  double sums[kWarp];
};

// Returns a key that orders by value, with NaN above all; of equal values, the one with the lower
// index has the larger key.
__device__ uint64_t MaxKeyOf(float value, int32_t index) {
  uint32_t orderable = 0xFFFFFFFFu;
  if (value == value) {
    value += 0.0f;  // -0 ties with 0
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof(bits));
    orderable = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  }
  return static_cast<uint64_t>(orderable) << 32 | static_cast<uint32_t>(~index);
}

__global__ void RowMaxKernel(RowReduceArgs args) {
  auto& shared = SharedMemory<RowReduceShared>();
  const RowReduceSizes sizes = *args.sizes;
  for (int32_t r = BlockIndex(); r < sizes.rows; r += GridBlocks()) {
    const float* row = args.x + r * args.row_stride;
    uint64_t largest = 0;
    for (int32_t i = ThreadIndex(); i < sizes.n; i += kThreads) {
      largest = Max()(largest, MaxKeyOf(row[i], i));
    }
    largest = BlockReduce(largest, Max(), shared.keys);
    if (ThreadIndex() != 0) continue;
    const auto index = static_cast<int32_t>(~static_cast<uint32_t>(largest));
    args.out[r] = row[index];
    if (args.ids != nullptr) args.ids[r] = index;
  }
}

__global__ void RowNormKernel(RowReduceArgs args) {
  auto& shared = SharedMemory<RowReduceShared>();
  const RowReduceSizes sizes = *args.sizes;
  for (int32_t r = BlockIndex(); r < sizes.rows; r += GridBlocks()) {
    const float* row = args.x + r * args.row_stride;
    double sum = 0;
    for (int32_t i = ThreadIndex(); i < sizes.n; i += kThreads) {
      const double x = row[i];
      sum += x * x;
    }
    sum = BlockReduce(sum, Plus(), shared.sums);
    if (ThreadIndex() == 0) args.out[r] = static_cast<float>(sqrt(sum));
  }
}

const Kernel kRowMax = KernelOf("RowMax", &RowMaxKernel);
const Kernel kRowNorm = KernelOf("RowNorm", &RowNormKernel);

void LaunchReduce(Stream& stream, const Kernel& kernel, const RowReduceArgs& args) {
  Launch(stream, kernel,
         {PersistentBlocks(stream, args.max_rows, 8), kThreads, sizeof(RowReduceShared)}, args);
}

}  // namespace

void RowMax(Stream& stream, const RowReduceArgs& args) { LaunchReduce(stream, kRowMax, args); }

void RowNorm(Stream& stream, const RowReduceArgs& args) {
  SLUICE_CHECK(args.ids == nullptr);
  LaunchReduce(stream, kRowNorm, args);
}

}  // namespace sluice::kernels::cuda
