#include "tests/kernels/simt/planted.h"

#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda::planted {
namespace {

struct AddArgs {
  const float* in;
  const int32_t* count;  // null means `frozen`
  int32_t frozen;
  int32_t excess;
  float* out;
};

__global__ void AddKernel(AddArgs args) {
  const int32_t n = args.count != nullptr ? *args.count : args.frozen;
  for (int32_t i = BlockIndex() * BlockThreads() + ThreadIndex(); i < n + args.excess;
       i += GridBlocks() * BlockThreads()) {
    args.out[i] = args.in[i] + static_cast<float>(n);
  }
}
const Kernel kAdd = KernelOf("Add", &AddKernel);

struct ReverseArgs {
  const float* in;
  Sync sync;
  int32_t width;
  float* out;
};

struct ReverseShared {
  float values[128];
};

__global__ void ReverseKernel(ReverseArgs args) {
  auto& shared = SharedMemory<ReverseShared>();
  const int32_t t = ThreadIndex();
  shared.values[t] = args.in[t];
  if (args.sync == Sync::kBlock) SyncBlock();
  if (args.sync == Sync::kWarp) SyncWarp();
  args.out[t] = shared.values[t / args.width * args.width + args.width - 1 - t % args.width];
}
const Kernel kReverse = KernelOf("Reverse", &ReverseKernel);

struct WarpSumsArgs {
  const float* in;
  float* out;
};

__global__ void LonelyShuffleKernel(WarpSumsArgs args) {
  if (Lane() != 0) return;
  args.out[Warp()] = Shuffle(args.in[ThreadIndex()], 0);
}
const Kernel kLonelyShuffle = KernelOf("LonelyShuffle", &LonelyShuffleKernel);

__global__ void WarpSumsKernel(WarpSumsArgs args) {
  float sum = args.in[ThreadIndex()];
  for (int32_t mask = kWarp / 2; mask > 0; mask /= 2) sum += ShuffleXor(sum, mask);
  const uint32_t odd = Ballot(Lane() % 2 == 1);
  const float above = ShuffleUp(static_cast<float>(Lane()), 3);
  const float wanted = static_cast<float>(Lane() < 3 ? Lane() : Lane() - 3);
  const bool right = odd == 0xAAAAAAAAu && above == wanted;
  if (Ballot(right) == 0xFFFFFFFFu && Lane() == 0) args.out[Warp()] = sum;
}
const Kernel kWarpSums = KernelOf("WarpSums", &WarpSumsKernel);

struct DivergeArgs {
  bool return_early;
  float* out;
};

__global__ void DivergeKernel(DivergeArgs args) {
  if (ThreadIndex() >= 64) {
    if (args.return_early) return;
    SyncBlock();
  } else {
    SyncBlock();
  }
  args.out[ThreadIndex()] = 0;
}
const Kernel kDiverge = KernelOf("Diverge", &DivergeKernel);

struct CopyArgs {
  const float* in;
  int32_t valid;
  Wait wait;
  float* out;
};

struct CopyShared {
  alignas(16) float values[256];
};

// Thread t copies 4 numbers in two groups of one copy per pair of threads; every thread reads all
// numbers.
__global__ void CopyKernel(CopyArgs args) {
  auto& shared = SharedMemory<CopyShared>();
  const int32_t first = 4 * ThreadIndex();
  const int32_t left = (args.valid - first) * 4;
  CopyAsync(&shared.values[first], args.in + (left > 0 ? first : 0),
            left < 0    ? 0
            : left > 16 ? 16
                        : left);
  CommitCopies();
  CommitCopies();  // an empty group, which does not hide the first
  if (args.wait != Wait::kNone) WaitCopies<1>();
  if (args.wait != Wait::kOnly) SyncBlock();
  for (int32_t i = ThreadIndex(); i < 256; i += BlockThreads()) {
    args.out[i] = 2 * shared.values[i];
  }
}
const Kernel kCopy = KernelOf("Copy", &CopyKernel);

struct BulkArgs {
  const float* in;
  BulkUse use;
  float* out;
};

struct BulkShared {
  alignas(16) float values[128];
  Arrival arrival;
};

__global__ void BulkKernel(BulkArgs args) {
  auto& shared = SharedMemory<BulkShared>();
  const int32_t t = ThreadIndex();
  const bool by_warps = args.use == BulkUse::kByWarps || args.use == BulkUse::kByOthers;
  if (t == 0 && args.use == BulkUse::kByWarps) InitWarpArrival(shared.arrival, 3);
  if (t == 0 && args.use != BulkUse::kByWarps) InitArrival(shared.arrival, 2);
  if (args.use != BulkUse::kNoBarrierBeforeInit) SyncBlock();
  for (int32_t phase = 0; phase < 2; ++phase) {
    if (by_warps) {
      const float* const from = args.in + phase * 128;
      if (Warp() < 2) {
        WarpBulkCopy(&shared.values[Warp() * 64], from + Warp() * 64, 64 * sizeof(float),
                     shared.arrival);
      }
      if (Warp() == 3) WarpBulkCopy(shared.values, from, 0, shared.arrival);
    } else if (args.use != BulkUse::kHalfTheBlock || t < 64) {
      for (int32_t half = 0; half < 2; ++half) {
        BulkCopy(&shared.values[half * 64], args.in + phase * 128 + half * 64, 64 * sizeof(float),
                 shared.arrival);
      }
    }
    const bool waits = args.use == BulkUse::kWaitInOneThread  ? t == 5
                       : args.use == BulkUse::kNoWaitAtTheEnd ? phase == 0
                                                              : args.use != BulkUse::kNoWait;
    if (waits) WaitArrival(shared.arrival, phase);
    if (args.use == BulkUse::kNoWaitAtTheEnd && phase == 1) return;
    args.out[phase * 128 + t] = 2 * shared.values[127 - t];
    if (args.use != BulkUse::kNoBarrierBetween) SyncBlock();
    if (args.use >= BulkUse::kWritten) {
      shared.values[t] = 0;
      if (args.use == BulkUse::kWritten) ShareWithCopies();
      SyncBlock();
      if (args.use == BulkUse::kSharedTooLate) ShareWithCopies();
    }
  }
}
const Kernel kBulk = KernelOf("Bulk", &BulkKernel);

struct PlaceArgs {
  int32_t* out;
};

__global__ void PlaceKernel(PlaceArgs args) {
  const auto& shared = SharedMemory<BulkShared>();
  if (ThreadIndex() > 0) return;
  *args.out = static_cast<int32_t>(reinterpret_cast<uintptr_t>(&shared) % kSharedAlignment);
}
const Kernel kPlace = KernelOf("Place", &PlaceKernel);

struct SumArgs {
  const float* in;
  FenceUse use;
  float* sums;
  int32_t* counter;
  float* out;
};

struct SumShared {
  bool last;
};

__global__ void SumKernel(SumArgs args) {
  auto& shared = SharedMemory<SumShared>();
  const FenceUse use = args.use;
  if (use == FenceUse::kBeforeTheBarrier && ThreadIndex() == 0) Fence();
  if (ThreadIndex() == 1) {
    float sum = 0;
    for (int32_t i = 0; i < 64; ++i) sum += args.in[BlockIndex() * 64 + i];
    args.sums[BlockIndex()] = sum;
  }
  SyncBlock();
  if (ThreadIndex() == 0) {
    if (use != FenceUse::kNotBefore && use != FenceUse::kBeforeTheBarrier) Fence();
    shared.last = AtomicAdd(args.counter, 1) == GridBlocks() - 1;
    if (use != FenceUse::kNotAfter) Fence();
  }
  if (use != FenceUse::kNoBarrierAfter) SyncBlock();
  if (ThreadIndex() != 2) return;
  // Without the barrier, no other thread may read the flag either.
  if (use == FenceUse::kNoBarrierAfter ? BlockIndex() == 0 : !shared.last) return;
  float sum = 0;
  for (int32_t i = 0; i < GridBlocks(); ++i) sum += args.sums[i];
  *args.out = sum;
}
const Kernel kSum = KernelOf("Sum", &SumKernel);

struct CountArgs {
  bool atomically;
  int32_t* counter;
};

__global__ void CountKernel(CountArgs args) {
  if (args.atomically) {
    AtomicAdd(args.counter, 1);
  } else {
    *args.counter += 1;
  }
}
const Kernel kCount = KernelOf("Count", &CountKernel);

struct MatchArgs {
  const uint32_t* in;
  bool some_return;
  int32_t* equal;
};

__global__ void MatchKernel(MatchArgs args) {
  const uint32_t own = args.in[Lane()];
  if (args.some_return && own == 0) return;
  args.equal[Lane()] = CountBits(MatchLanes(own));
}
const Kernel kMatch = KernelOf("Match", &MatchKernel);

struct OverlapArgs {
  WaitPlace place;
  float* values;
};

__global__ void OverlapKernel(OverlapArgs args) {
  auto& shared = SharedMemory<ReverseShared>();
  const int32_t t = ThreadIndex();
  shared.values[t] = static_cast<float>(t);  // shared memory belongs to the block
  const float early = args.place == WaitPlace::kAfterReading ? args.values[t] : 0;
  if (args.place == WaitPlace::kAfterWriting) args.values[t] = 1;
  if (args.place == WaitPlace::kNowhere) return;
  if (args.place == WaitPlace::kInHalfTheBlock && t >= 64) return;
  WaitForPrevious();
  args.values[t] += shared.values[t] + early;
}
const Kernel kOverlap = KernelOf("Overlap", &OverlapKernel);

}  // namespace

void AddCount(Stream& stream, const float* in, const int32_t* n, int32_t blocks, float* out) {
  Launch(stream, kAdd, {blocks, 64}, AddArgs{in, n, 0, 0, out});
}
void AddFrozenCount(Stream& stream, const float* in, int32_t n, int32_t blocks, float* out) {
  Launch(stream, kAdd, {blocks, 64}, AddArgs{in, nullptr, n, 0, out});
}
void AddOneTooMany(Stream& stream, const float* in, const int32_t* n, int32_t blocks, float* out) {
  Launch(stream, kAdd, {blocks, 64}, AddArgs{in, n, 0, 1, out});
}

void Reverse(Stream& stream, const float* in, Sync sync, float* out) {
  Launch(stream, kReverse, {1, 128, sizeof(ReverseShared)}, ReverseArgs{in, sync, 128, out});
}
void ReverseInWarps(Stream& stream, const float* in, Sync sync, float* out) {
  Launch(stream, kReverse, {1, 128, sizeof(ReverseShared)}, ReverseArgs{in, sync, kWarp, out});
}

void WarpSums(Stream& stream, const float* in, float* out) {
  Launch(stream, kWarpSums, {1, 128}, WarpSumsArgs{in, out});
}
void ShuffleWithReturnedLanes(Stream& stream, const float* in, float* out) {
  Launch(stream, kLonelyShuffle, {1, 128}, WarpSumsArgs{in, out});
}
void DivergentBarrier(Stream& stream, bool return_early, float* out) {
  Launch(stream, kDiverge, {1, 128}, DivergeArgs{return_early, out});
}

void DoubleByCopies(Stream& stream, const float* in, int32_t valid, Wait wait, float* out) {
  Launch(stream, kCopy, {1, 64, sizeof(CopyShared)}, CopyArgs{in, valid, wait, out});
}

void DoubleInBulk(Stream& stream, const float* in, BulkUse use, float* out) {
  Launch(stream, kBulk, {1, 128, sizeof(BulkShared)}, BulkArgs{in, use, out});
}

void PlaceOfShared(Stream& stream, int32_t* out) {
  Launch(stream, kPlace, {1, 32, sizeof(BulkShared)}, PlaceArgs{out});
}

void SumOverBlocks(Stream& stream, const float* in, int32_t blocks, FenceUse use, float* sums,
                   int32_t* counter, float* out) {
  Launch(stream, kSum, {blocks, 64, sizeof(SumShared)}, SumArgs{in, use, sums, counter, out});
}

void Count(Stream& stream, bool atomically, int32_t blocks, int32_t* counter) {
  Launch(stream, kCount, {blocks, 64}, CountArgs{atomically, counter});
}

void MatchLanesOf(Stream& stream, const uint32_t* in, bool some_return, int32_t* equal) {
  Launch(stream, kMatch, {1, 32}, MatchArgs{in, some_return, equal});
}

void AddIndexOverlapping(Stream& stream, WaitPlace place, float* values) {
  Launch(stream, kOverlap,
         {.blocks = 1,
          .threads = 128,
          .shared_bytes = sizeof(ReverseShared),
          .overlaps_previous = true},
         OverlapArgs{place, values});
}

}  // namespace sluice::kernels::cuda::planted
