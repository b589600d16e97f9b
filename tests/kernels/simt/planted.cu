#include "tests/kernels/simt/planted.h"

#include "kernels/simt/simt.h"
#include "kernels/simt/warpgroup.h"

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
  if (t == 0) InitArrival(shared.arrival, 2);
  if (args.use != BulkUse::kNoBarrierBeforeInit) SyncBlock();
  for (int32_t phase = 0; phase < 2; ++phase) {
    if (args.use != BulkUse::kHalfTheBlock || t < 64) {
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
  }
}
const Kernel kBulk = KernelOf("Bulk", &BulkKernel);

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
  // Without the barrier the flag is no other thread's either.
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
  uint32_t* equal;
  uint32_t* sum;
};

__global__ void MatchKernel(MatchArgs args) {
  const uint32_t own = args.in[Lane()];
  if (args.some_return && own == 0) return;
  uint32_t equal = 0;
  for (uint32_t left = MatchLanes(own); left != 0; left &= left - 1) ++equal;
  args.equal[Lane()] = equal;
  const uint32_t sum = AddLanes(own);
  if (Lane() == 0) *args.sum = sum;
}
const Kernel kMatch = KernelOf("Match", &MatchKernel);

struct RowsArgs {
  const uint16_t* in;
  Rows rows;
  bool transposed;
  uint32_t* out;
};

struct alignas(16) EightNumbers {
  uint16_t at[8];
};

struct RowsShared {
  EightNumbers rows[kWarp + 1];
};

__global__ void LoadRowsKernel(RowsArgs args) {
  auto& shared = SharedMemory<RowsShared>();
  const uint16_t* const own = args.in + 8 * Lane();
  StoreWhole(LoadWhole<EightNumbers>(own), &shared.rows[Lane()]);
  if (args.rows != Rows::kWithoutBarrier) SyncWarp();
  const uint16_t* row = shared.rows[Lane()].at;
  if (args.rows == Rows::kNotAligned) ++row;
  if (args.rows == Rows::kInGlobalMemory) row = own;
  uint32_t loaded[4];
  if (args.transposed) {
    LoadMatrices<true>(row, loaded);
  } else {
    LoadMatrices<false>(row, loaded);
  }
  for (int32_t i = 0; i < 4; ++i) args.out[Lane() * 4 + i] = loaded[i];
}
const Kernel kLoadRows = KernelOf("LoadRows", &LoadRowsKernel);

struct PowersArgs {
  const float* in;
  bool divided;
  float* out;
};

__global__ void PowersKernel(PowersArgs args) {
  const float power = Exp2(args.in[Lane()]);
  args.out[Lane()] = args.divided ? power / power : power;
}
const Kernel kPowers = KernelOf("Powers", &PowersKernel);

struct PairsArgs {
  const float* in;
  uint32_t* out;
};

__global__ void PairsKernel(PairsArgs args) {
  args.out[Lane()] = RoundToPair(args.in[2 * Lane()], args.in[2 * Lane() + 1]);
}
const Kernel kPairs = KernelOf("Pairs", &PairsKernel);

struct MultiplyArgs {
  const uint16_t* a;
  const uint16_t* b;
  float* d;
};

__device__ inline uint32_t Pair(uint16_t low, uint16_t high) {
  return low | static_cast<uint32_t>(high) << 16;
}

__global__ void MultiplyKernel(MultiplyArgs args) {
  const int32_t g = Lane() / 4, t = Lane() % 4;
  uint32_t a[4], b[2];
  for (int32_t i = 0; i < 4; ++i) {
    const uint16_t* from = args.a + (g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8;
    a[i] = Pair(from[0], from[1]);
  }
  for (int32_t i = 0; i < 2; ++i) {
    const uint16_t* from = args.b + (2 * t + i * 8) * 8 + g;
    b[i] = Pair(from[0], from[8]);
  }
  float d[4] = {};
  MultiplyAdd(d, a, b);
  for (int32_t i = 0; i < 4; ++i) args.d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}
const Kernel kMultiply = KernelOf("Multiply", &MultiplyKernel);

constexpr int32_t kGroupK = 32, kGroupN = 128;

struct MultiplyByGroupArgs {
  const uint16_t* a;
  const uint16_t* b;
  GroupFault fault;
  float* d;
};

struct MultiplyByGroupShared {
  alignas(16) uint16_t a[kGroupRows / 8][kGroupK / 8][8][8];
  alignas(16) uint16_t b[kGroupK / 8][kGroupN / 8][8][8];
  Arrival arrival;
};

// Brings the operands in bulk copies of 8 numbers.
__device__ void BringInBulk(const MultiplyByGroupArgs& args, MultiplyByGroupShared& shared) {
  if (ThreadIndex() == 0) InitArrival(shared.arrival, (kGroupRows + kGroupN) * kGroupK / 8);
  SyncBlock();
  for (int32_t row = 0; row < kGroupRows; ++row) {
    for (int32_t k = 0; k < kGroupK; k += 8) {
      BulkCopy(shared.a[row / 8][k / 8][row % 8], args.a + row * kGroupK + k, 16, shared.arrival);
    }
  }
  for (int32_t k = 0; k < kGroupK; ++k) {
    for (int32_t column = 0; column < kGroupN; column += 8) {
      BulkCopy(shared.b[k / 8][column / 8][k % 8], args.b + k * kGroupN + column, 16,
               shared.arrival);
    }
  }
  WaitArrival(shared.arrival, 0);
}

__global__ void MultiplyByGroupKernel(MultiplyByGroupArgs args) {
  auto& shared = SharedMemory<MultiplyByGroupShared>();
  const GroupFault fault = args.fault;
  const bool in_bulk = fault == GroupFault::kNoneInBulk;
  if (in_bulk) BringInBulk(args, shared);
  for (int32_t i = ThreadIndex(); !in_bulk && i < kGroupRows * kGroupK; i += kGroupThreads) {
    const int32_t row = i / kGroupK, k = i % kGroupK;
    shared.a[row / 8][k / 8][row % 8][k % 8] = args.a[i];
  }
  for (int32_t i = ThreadIndex(); !in_bulk && i < kGroupK * kGroupN; i += kGroupThreads) {
    const int32_t k = i / kGroupN, column = i % kGroupN;
    shared.b[k / 8][column / 8][k % 8][column % 8] = args.b[i];
  }
  const bool shares = fault != GroupFault::kNotShared && fault != GroupFault::kSharedTooLate;
  if (shares && !in_bulk) ShareWithProducts();
  SyncBlock();
  if (fault == GroupFault::kSharedTooLate) ShareWithProducts();
  float d[kGroupN / 2] = {};
  if (fault != GroupFault::kNotBegun) BeginProducts();
  constexpr int32_t kMatrix = 128;
  for (int32_t k = 0; k < kGroupK; k += kGroupDepth) {
    MultiplyAddGroup<kGroupN>(d, {shared.a[0][k / 8], kMatrix, kGroupK / 8 * kMatrix},
                              {shared.b[k / 8][0], kGroupN / 8 * kMatrix, kMatrix});
  }
  CommitProducts();
  if (fault == GroupFault::kNotWaited) return;
  const float early = d[0];
  if (fault == GroupFault::kChangedTooEarly) shared.a[Warp() * 2][0][0][Lane() % 8] = 0;
  WaitProducts<0>();
  if (fault == GroupFault::kChangedByOthers) shared.b[0][0][0][0] = 0;
  if (fault == GroupFault::kUsedTooEarly) d[0] = early;
  for (int32_t i = 0; i < kGroupN / 2; ++i) {
    const int32_t row = Warp() * 16 + Lane() / 4 + i / 2 % 2 * 8;
    args.d[row * kGroupN + i / 4 * 8 + Lane() % 4 * 2 + i % 2] = d[i];
  }
}
const Kernel kMultiplyByGroup = KernelOf("MultiplyByGroup", &MultiplyByGroupKernel);

struct OverlapArgs {
  WaitPlace place;
  float* values;
};

__global__ void OverlapKernel(OverlapArgs args) {
  auto& shared = SharedMemory<ReverseShared>();
  const int32_t t = ThreadIndex();
  shared.values[t] = static_cast<float>(t);  // shared memory is the block's own
  const float early = args.place == WaitPlace::kAfterReading ? args.values[t] : 0;
  if (args.place == WaitPlace::kAfterWriting) args.values[t] = 1;
  if (args.place == WaitPlace::kNowhere) return;
  if (args.place == WaitPlace::kInHalfTheBlock && t >= 64) return;
  WaitForPrevious();
  args.values[t] += shared.values[t] + early;
}
const Kernel kOverlap = KernelOf("Overlap", &OverlapKernel);

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

void SumOverBlocks(Stream& stream, const float* in, int32_t blocks, FenceUse use, float* sums,
                   int32_t* counter, float* out) {
  Launch(stream, kSum, {blocks, 64, sizeof(SumShared)}, SumArgs{in, use, sums, counter, out});
}

void Count(Stream& stream, bool atomically, int32_t blocks, int32_t* counter) {
  Launch(stream, kCount, {blocks, 64}, CountArgs{atomically, counter});
}

void MatchAndAdd(Stream& stream, const uint32_t* in, bool some_return, uint32_t* equal,
                 uint32_t* sum) {
  Launch(stream, kMatch, {1, 32}, MatchArgs{in, some_return, equal, sum});
}

void LoadRows(Stream& stream, const uint16_t* in, Rows rows, bool transposed, uint32_t* out) {
  Launch(stream, kLoadRows, {1, 32, sizeof(RowsShared)}, RowsArgs{in, rows, transposed, out});
}

void PowersOfTwo(Stream& stream, const float* in, bool divided, float* out) {
  Launch(stream, kPowers, {1, 32}, PowersArgs{in, divided, out});
}
void RoundToPairs(Stream& stream, const float* in, uint32_t* out) {
  Launch(stream, kPairs, {1, 32}, PairsArgs{in, out});
}

void Multiply(Stream& stream, const uint16_t* a, const uint16_t* b, float* d) {
  Launch(stream, kMultiply, {1, 32}, MultiplyArgs{a, b, d});
}

void MultiplyByGroup(Stream& stream, const uint16_t* a, const uint16_t* b, GroupFault fault,
                     float* d) {
  Launch(stream, kMultiplyByGroup, {1, kGroupThreads, sizeof(MultiplyByGroupShared)},
         MultiplyByGroupArgs{a, b, fault, d});
}

void AddIndexOverlapping(Stream& stream, WaitPlace place, float* values) {
  Launch(stream, kOverlap,
         {.blocks = 1,
          .threads = 128,
          .shared_bytes = sizeof(ReverseShared),
          .overlaps_previous = true},
         OverlapArgs{place, values});
}

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
