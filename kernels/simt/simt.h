// The complete vocabulary of device code: a .cu file of kernels/cuda uses nothing else of CUDA. So
// the same source runs on a GPU, compiled by nvcc, and in the emulator of this folder. For the
// emulator the host's compiler compiles it, and every access and every barrier is checked.
//
//   __global__ void AddKernel(AddArgs args) {...}
//   const Kernel kAdd = KernelOf("Add", &AddKernel);
//
// All warp functions are collective: the 32 lanes of a warp call them together. There are no
// atomics on floating-point numbers, because their result would depend on the order of threads.
#pragma once

#include <cstdint>

#include "kernels/simt/stream.h"

#ifdef SLUICE_SIMT
#define __global__
#define __device__
#define __launch_bounds__(threads)
#define SLUICE_UNROLL
#define SLUICE_ROLLED
#define SLUICE_NOT_INLINED [[gnu::noinline]]
#else
#define SLUICE_UNROLL _Pragma("unroll")    // for loops that index arrays in registers
#define SLUICE_ROLLED _Pragma("unroll 1")  // for loops that seldom run
#define SLUICE_NOT_INLINED __noinline__    // for functions that seldom run
#endif

namespace sluice::kernels::cuda {

inline constexpr int32_t kWarp = 32;

// The place in the code of a call of a barrier or collective. The emulator reports it; on a GPU it
// is empty.
struct CallSite {
#ifdef SLUICE_SIMT
  const char* file;
  int line;
  static constexpr CallSite Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
#else
  __device__ static constexpr CallSite Here() { return {}; }
#endif
};

// Returns the kernel `function`, called `name` in reports.
template <typename Argument>
Kernel KernelOf(const char* name, void (*function)(Argument));

// The place of the calling thread.
__device__ int32_t ThreadIndex();  // in its block
__device__ int32_t BlockThreads();
__device__ int32_t BlockIndex();  // in the grid
__device__ int32_t GridBlocks();
__device__ inline int32_t Lane() { return ThreadIndex() % kWarp; }
__device__ inline int32_t Warp() { return ThreadIndex() / kWarp; }

// Waits until all earlier launches have ended and their writes are visible. If a launch overlaps
// the previous one, each of its threads must call this before it accesses global memory. After this
// call, the next launch may start once all blocks of this launch have started, if it overlaps this
// one.
__device__ void WaitForPrevious();

// Barriers for the whole block and for the whole warp. Memory writes before the barrier are visible
// after it.
__device__ void SyncBlock(CallSite site = CallSite::Here());
__device__ void SyncWarp(CallSite site = CallSite::Here());

// Return the value of lane `lane`, of lane Lane() ^ mask, and of lane Lane() - delta (lanes below
// delta get their own value). T has 4 or 8 bytes. These functions are not memory barriers.
template <typename T>
__device__ T Shuffle(T value, int32_t lane, CallSite site = CallSite::Here());
template <typename T>
__device__ T ShuffleXor(T value, int32_t mask, CallSite site = CallSite::Here());
template <typename T>
__device__ T ShuffleUp(T value, int32_t delta, CallSite site = CallSite::Here());

// Returns a mask whose bit i is lane i's `predicate`.
__device__ uint32_t Ballot(bool predicate, CallSite site = CallSite::Here());

// Returns a mask. Bit i is set if lane i passes the same value.
__device__ uint32_t MatchLanes(uint32_t value, CallSite site = CallSite::Here());
// Returns the number of bits that are set.
__device__ int32_t CountBits(uint32_t bits);

inline constexpr int32_t kSharedAlignment = 1024;  // bytes
// Returns the launch's shared memory as a T, aligned to kSharedAlignment. Requires sizeof(T) <=
// LaunchShape::shared_bytes.
template <typename T>
__device__ T& SharedMemory();

// Adds value to *address, in shared or global memory, and returns the previous value.
__device__ int32_t AtomicAdd(int32_t* address, int32_t value);
__device__ uint64_t AtomicAdd(uint64_t* address, uint64_t value);

// Publishes the calling thread's writes, and the writes of its block that barriers have shown to
// it. Use: this thread calls Fence and then adds to an address by AtomicAdd. A thread of another
// block that later adds to the same address and then calls Fence sees the writes.
__device__ void Fence();

// Read and write a struct of up to 16 bytes in one access. Require that its alignment equals its
// size, and that the address is a multiple of its size.
template <typename T>
__device__ T LoadWhole(const void* from);
template <typename T>
__device__ void StoreWhole(const T& value, void* to);

// Copies 16 bytes asynchronously from global to shared memory, both 16-byte aligned: copies the
// first `bytes` (0 to 16) and sets the others to zero. The data has arrived only after the calling
// thread has waited; the source must not change before. Other threads see the data after one more
// barrier.
__device__ void CopyAsync(void* shared, const void* global, int32_t bytes);
// Ends the calling thread's current group of copies, which may be empty.
__device__ void CommitCopies();
// Waits until all but the last `kPending` groups of the calling thread have arrived.
template <int kPending>
__device__ void WaitCopies();

// A place in shared memory that counts arrivals of bulk copies, in phases that count from 0.
struct Arrival {
  uint64_t state;
};
// Prepares phases of `copies` copies each, by BulkCopy or by WarpBulkCopy. One thread calls it, and
// a barrier follows.
__device__ void InitArrival(Arrival& arrival, int32_t copies);
__device__ void InitWarpArrival(Arrival& arrival, int32_t copies);
// Copies asynchronously from global to shared memory, both 16-byte aligned; `bytes` is a multiple
// of 16. All threads of the block call it with the same arguments. The source must not change
// before the arrival. If threads have written the target, each of them must call ShareWithCopies
// after that, and a barrier must follow.
__device__ void BulkCopy(void* shared, const void* global, int32_t bytes, Arrival& arrival);
// Does the same for one warp: its lanes call it with the same arguments. `bytes` may be 0, for a
// copy that only counts.
__device__ void WarpBulkCopy(void* shared, const void* global, int32_t bytes, Arrival& arrival);
// Orders the calling thread's writes to shared memory before bulk copies to the same memory that
// are started after another barrier.
__device__ void ShareWithCopies();
// Waits until all copies of a phase have arrived; the calling thread then sees the data. Before the
// first copy of the next phase, every thread must wait for the previous phase and pass a barrier.
__device__ void WaitArrival(Arrival& arrival, int32_t phase, CallSite site = CallSite::Here());

// Loads four matrices of 8 rows from shared memory, like ldmatrix. A row is 8 numbers of 2 bytes,
// 16-byte aligned; lane 8 i + r passes the address of row r of matrix i. With g = Lane() / 4 and
// t = Lane() % 4, to[i] becomes the numbers 2t and 2t+1 of row g of matrix i, or, if kTransposed,
// number g of rows 2t and 2t+1; the first in the lower half.
template <bool kTransposed>
__device__ void LoadMatrices(const void* row, uint32_t (&to)[4], CallSite site = CallSite::Here());

// Computes d += a b for a [16, 16] and b [16, 8] in bfloat16, d [16, 8] in float, distributed over
// a warp like mma.m16n8k16. With g = Lane() / 4 and t = Lane() % 4, and with pairs of bfloat16 in a
// word, the lower index in the lower half:
//   a[0]: row g,     columns 2t, 2t+1      b[0]: rows 2t, 2t+1, column g
//   a[1]: row g + 8, columns 2t, 2t+1      b[1]: rows 2t+8, 2t+9, column g
//   a[2]: row g,     columns 2t+8, 2t+9    d[0], d[1]: row g,     columns 2t, 2t+1
//   a[3]: row g + 8, columns 2t+8, 2t+9    d[2], d[3]: row g + 8, columns 2t, 2t+1
__device__ void MultiplyAdd(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                            CallSite site = CallSite::Here());

// Computes d += a b for a [16, 32] and b [32, 8] in int8, d [16, 8] in int32, like mma.m16n8k32: as
// above, but with four int8 in a word. Sums wrap.
//   a[0]: row g,     columns 4t to 4t+3       b[0]: rows 4t to 4t+3, column g
//   a[1]: row g + 8, columns 4t to 4t+3       b[1]: rows 4t+16 to 4t+19, column g
//   a[2]: row g,     columns 4t+16 to 4t+19
//   a[3]: row g + 8, columns 4t+16 to 4t+19
__device__ void MultiplyAdd(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                            CallSite site = CallSite::Here());

// Returns the numbers of bfloat16 nearest to two floats, ties to even, the first in the lower half.
__device__ uint32_t RoundToPair(float low, float high);

// Returns 2^x with a relative error below 2^-22: exactly 1 for 0, and 0 if the result is
// subnormal.
__device__ float Exp2(float x);

}  // namespace sluice::kernels::cuda

#ifdef SLUICE_SIMT
#include "kernels/simt/device_code.h"
#else
#include "kernels/simt/simt_nvcc.h"
#endif
