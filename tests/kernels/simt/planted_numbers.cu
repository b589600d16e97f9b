#include "tests/kernels/simt/planted.h"

#include "kernels/simt/simt.h"
#include "kernels/simt/warpgroup.h"

namespace sluice::kernels::cuda::planted {
namespace {

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

struct MultiplyInt8Args {
  const int8_t* a;
  const int8_t* b;
  bool some_return;
  int32_t* d;
};

__device__ inline uint32_t Four(const int8_t* from, int32_t step) {
  uint32_t word = 0;
  for (int32_t i = 0; i < 4; ++i) {
    word |= static_cast<uint32_t>(static_cast<uint8_t>(from[i * step])) << (8 * i);
  }
  return word;
}

__global__ void MultiplyInt8Kernel(MultiplyInt8Args args) {
  const int32_t g = Lane() / 4, t = Lane() % 4;
  uint32_t a[4], b[2];
  for (int32_t i = 0; i < 4; ++i) {
    a[i] = Four(args.a + (g + i % 2 * 8) * 32 + 4 * t + i / 2 * 16, 1);
  }
  for (int32_t i = 0; i < 2; ++i) b[i] = Four(args.b + (4 * t + i * 16) * 8 + g, 8);
  if (args.some_return && g == 7) return;
  int32_t d[4] = {};
  MultiplyAdd(d, a, b);
  for (int32_t i = 0; i < 4; ++i) args.d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}
const Kernel kMultiplyInt8 = KernelOf("MultiplyInt8", &MultiplyInt8Kernel);

constexpr int32_t kGroupK = 32, kGroupN = 128;

struct MultiplyByGroupArgs {
  const uint16_t* a;
  const uint16_t* b;
  GroupFault fault;
  float* d;
};

struct MultiplyByGroupShared {
  alignas(16) uint16_t a[kGroupRows / 8][kGroupK / 8][8][8];
  union {
    alignas(16) uint16_t b[kGroupK / 8][kGroupN / 8][8][8];
    uint16_t by_columns[kGroupN / 8][kGroupK / 8][8][8];
  };
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
  const bool by_columns = fault == GroupFault::kNoneByColumns;
  if (in_bulk) BringInBulk(args, shared);
  for (int32_t i = ThreadIndex(); !in_bulk && i < kGroupRows * kGroupK; i += kGroupThreads) {
    const int32_t row = i / kGroupK, k = i % kGroupK;
    shared.a[row / 8][k / 8][row % 8][k % 8] = args.a[i];
  }
  for (int32_t i = ThreadIndex(); !in_bulk && i < kGroupK * kGroupN; i += kGroupThreads) {
    const int32_t k = i / kGroupN, column = i % kGroupN;
    if (by_columns) {
      shared.by_columns[column / 8][k / 8][column % 8][k % 8] = args.b[i];
    } else {
      shared.b[k / 8][column / 8][k % 8][column % 8] = args.b[i];
    }
  }
  const bool shares = fault != GroupFault::kNotShared && fault != GroupFault::kSharedTooLate;
  if (shares && !in_bulk) ShareWithProducts();
  SyncBlock();
  if (fault == GroupFault::kSharedTooLate) ShareWithProducts();
  float d[kGroupN / 2] = {};
  const bool by_fragments =
      fault == GroupFault::kNoneByFragments || fault == GroupFault::kFragmentChanged;
  uint32_t fragments[kGroupK / kGroupDepth][4];
  for (int32_t k = 0; by_fragments && k < kGroupK; k += kGroupDepth) {
    const int32_t row = Warp() * 16 + Lane() % 16, depth = k + Lane() / 16 * 8;
    LoadMatrices<false>(&shared.a[row / 8][depth / 8][row % 8], fragments[k / kGroupDepth]);
  }
  if (fault != GroupFault::kNotBegun) BeginProducts();
  constexpr int32_t kMatrix = 128;
  for (int32_t k = 0; k < kGroupK; k += kGroupDepth) {
    const GroupOperand a = {shared.a[0][k / 8], kMatrix, kGroupK / 8 * kMatrix};
    if (by_columns) {
      MultiplyAddGroup<kGroupN, GroupOrder::kByColumns>(
          d, a, {shared.by_columns[0][k / 8], kMatrix, kGroupK / 8 * kMatrix});
    } else if (by_fragments) {
      MultiplyAddGroup<kGroupN>(d, fragments[k / kGroupDepth],
                                {shared.b[k / 8][0], kGroupN / 8 * kMatrix, kMatrix});
    } else {
      MultiplyAddGroup<kGroupN>(d, a, {shared.b[k / 8][0], kGroupN / 8 * kMatrix, kMatrix});
    }
  }
  CommitProducts();
  if (fault == GroupFault::kNotWaited) return;
  const float early = d[0];
  if (fault == GroupFault::kChangedTooEarly) shared.a[Warp() * 2][0][0][Lane() % 8] = 0;
  if (fault == GroupFault::kFragmentChanged) ++fragments[1][3];
  if (fault == GroupFault::kNamedTooEarly) WaitProducts<1>(d);
  WaitProducts<0>(d);
  if (fault == GroupFault::kChangedByOthers) shared.b[0][0][0][0] = 0;
  if (fault == GroupFault::kUsedTooEarly) d[0] = early;
  for (int32_t i = 0; i < kGroupN / 2; ++i) {
    const int32_t row = Warp() * 16 + Lane() / 4 + i / 2 % 2 * 8;
    args.d[row * kGroupN + i / 4 * 8 + Lane() % 4 * 2 + i % 2] = d[i];
  }
}
const Kernel kMultiplyByGroup = KernelOf("MultiplyByGroup", &MultiplyByGroupKernel);

}  // namespace

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

void MultiplyInt8(Stream& stream, const int8_t* a, const int8_t* b, bool some_return, int32_t* d) {
  Launch(stream, kMultiplyInt8, {1, 32}, MultiplyInt8Args{a, b, some_return, d});
}

void MultiplyByGroup(Stream& stream, const uint16_t* a, const uint16_t* b, GroupFault fault,
                     float* d) {
  Launch(stream, kMultiplyByGroup, {1, kGroupThreads, sizeof(MultiplyByGroupShared)},
         MultiplyByGroupArgs{a, b, fault, d});
}

}  // namespace sluice::kernels::cuda::planted
