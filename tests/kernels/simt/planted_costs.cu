#include "tests/kernels/simt/planted.h"

#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda::planted {
namespace {

struct alignas(16) FourFloats {
  float at[4];
};

struct MoveArgs {
  const float* in;
  float* out;
};

__global__ void MoveKernel(MoveArgs args) {
  const int32_t first = 4 * ThreadIndex();
  StoreWhole(LoadWhole<FourFloats>(args.in + first), args.out + first);
}
const Kernel kMove = KernelOf("Move", &MoveKernel);

struct MoveHalvesArgs {
  const uint16_t* in;
  uint16_t* out;
};

__global__ void MoveHalvesKernel(MoveHalvesArgs args) {
  args.out[ThreadIndex()] = args.in[ThreadIndex()];
}
const Kernel kMoveHalves = KernelOf("MoveHalves", &MoveHalvesKernel);

struct StrideArgs {
  const float* in;
  int32_t stride;
  float* out;
};

__global__ void GatherKernel(StrideArgs args) {
  args.out[ThreadIndex()] = args.in[ThreadIndex() * args.stride];
}
const Kernel kGather = KernelOf("Gather", &GatherKernel);

struct SpreadShared {
  alignas(16) float values[kWarp * kWarp];
};

__global__ void SpreadKernel(StrideArgs args) {
  auto& shared = SharedMemory<SpreadShared>();
  shared.values[Lane() * args.stride] = args.in[Lane()];
  args.out[Lane()] = shared.values[Lane() * args.stride];
}
const Kernel kSpread = KernelOf("Spread", &SpreadKernel);

__global__ void SpreadFoursKernel(StrideArgs args) {
  auto& shared = SharedMemory<SpreadShared>();
  if (Lane() >= kWarp / 4) return;
  float* const own = &shared.values[4 * Lane() * args.stride];
  StoreWhole(LoadWhole<FourFloats>(args.in + 4 * Lane()), own);
  StoreWhole(LoadWhole<FourFloats>(own), args.out + 4 * Lane());
}
const Kernel kSpreadFours = KernelOf("SpreadFours", &SpreadFoursKernel);

__global__ void BroadcastKernel(StrideArgs args) {
  auto& shared = SharedMemory<SpreadShared>();
  shared.values[Lane()] = args.in[Lane()];
  SyncWarp();
  args.out[Lane()] = shared.values[0];
}
const Kernel kBroadcast = KernelOf("Broadcast", &BroadcastKernel);

struct CountInSharedArgs {
  int32_t counters;
  int32_t* out;
};

struct CountInSharedShared {
  int32_t counters[kWarp];
};

__global__ void CountInSharedKernel(CountInSharedArgs args) {
  auto& shared = SharedMemory<CountInSharedShared>();
  if (Warp() == 0) shared.counters[Lane()] = 0;
  SyncBlock();
  AtomicAdd(&shared.counters[Lane() % args.counters], 1);
  SyncBlock();
  if (ThreadIndex() < args.counters) {
    AtomicAdd(&args.out[ThreadIndex()], shared.counters[ThreadIndex()]);
  }
}
const Kernel kCountInShared = KernelOf("CountInShared", &CountInSharedKernel);

}  // namespace

void MoveByFours(Stream& stream, const float* in, float* out) {
  Launch(stream, kMove, {1, 32}, MoveArgs{in, out});
}

void MoveByHalves(Stream& stream, const uint16_t* in, uint16_t* out) {
  Launch(stream, kMoveHalves, {1, 64}, MoveHalvesArgs{in, out});
}

void Gather(Stream& stream, const float* in, int32_t stride, float* out) {
  Launch(stream, kGather, {1, 64}, StrideArgs{in, stride, out});
}

void Spread(Stream& stream, const float* in, int32_t stride, float* out) {
  Launch(stream, kSpread, {1, 32, sizeof(SpreadShared)}, StrideArgs{in, stride, out});
}
void SpreadByFours(Stream& stream, const float* in, int32_t stride, float* out) {
  Launch(stream, kSpreadFours, {1, 32, sizeof(SpreadShared)}, StrideArgs{in, stride, out});
}
void Broadcast(Stream& stream, const float* in, float* out) {
  Launch(stream, kBroadcast, {1, 32, sizeof(SpreadShared)}, StrideArgs{in, 0, out});
}

void CountInShared(Stream& stream, int32_t counters, int32_t* out) {
  Launch(stream, kCountInShared, {2, 64, sizeof(CountInSharedShared)},
         CountInSharedArgs{counters, out});
}

}  // namespace sluice::kernels::cuda::planted
