// The complete vocabulary of device code: a .cu file of kernels/cuda uses nothing else of CUDA. So
// the same source runs on a GPU, compiled by nvcc, and in the emulator of this folder, compiled by
// the host's compiler, which checks every access and every barrier.
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
#else
#define SLUICE_UNROLL _Pragma("unroll")    // for loops whose array indices must be registers
#define SLUICE_ROLLED _Pragma("unroll 1")  // for loops that seldom run
#endif

namespace sluice::kernels::cuda {

inline constexpr int32_t kWarp = 32;

// The place from which a barrier or a collective was called. The emulator reports it; on a GPU it
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

// Waits until all earlier launches have ended and their writes are visible. Every thread of a
// launch that overlaps the one before calls it before it accesses global memory. From then on the
// next launch, if it overlaps this one, may start once all blocks of this one have.
__device__ void WaitForPrevious();

// Barriers for the whole block and for the whole warp. Memory writes before the barrier are visible
// after it.
__device__ void SyncBlock(CallSite site = CallSite::Here());
__device__ void SyncWarp(CallSite site = CallSite::Here());

// Return the value of lane `lane`, of lane Lane() ^ mask, and of lane Lane() - delta (the own value
// for lanes below delta). T has 4 or 8 bytes. They are no barriers for memory.
template <typename T>
__device__ T Shuffle(T value, int32_t lane, CallSite site = CallSite::Here());
template <typename T>
__device__ T ShuffleXor(T value, int32_t mask, CallSite site = CallSite::Here());
template <typename T>
__device__ T ShuffleUp(T value, int32_t delta, CallSite site = CallSite::Here());

// Returns a mask whose bit i is lane i's `predicate`.
__device__ uint32_t Ballot(bool predicate, CallSite site = CallSite::Here());

// Returns a mask whose bit i says whether lane i passes the same value.
__device__ uint32_t MatchLanes(uint32_t value, CallSite site = CallSite::Here());
// Returns the number of bits that are set.
__device__ int32_t CountBits(uint32_t bits);

// Returns the launch's shared memory as a T, 16-byte aligned. Requires sizeof(T) <=
// LaunchShape::shared_bytes.
template <typename T>
__device__ T& SharedMemory();

// Adds value to *address, in shared or global memory, and returns the previous value.
__device__ int32_t AtomicAdd(int32_t* address, int32_t value);
__device__ uint64_t AtomicAdd(uint64_t* address, uint64_t value);

// Shows what the calling thread wrote, and what barriers have shown it of its block's writes, to
// threads of other blocks: to those that, after this thread has added to an address by AtomicAdd,
// add to the same address and then call Fence.
__device__ void Fence();

// Read and write a struct of up to 16 bytes by one access. Require that it is as aligned as it is
// large, and that the address is a multiple of its size.
template <typename T>
__device__ T LoadWhole(const void* from);
template <typename T>
__device__ void StoreWhole(const T& value, void* to);

// Copies 16 bytes asynchronously from global to shared memory, both 16-byte aligned: the first
// `bytes` (0 to 16) are copied, the others become zero. The data has arrived only after the calling
// thread has waited, and the source must not change before; other threads see the data after an
// additional barrier.
__device__ void CopyAsync(void* shared, const void* global, int32_t bytes);
// Ends the calling thread's current group of copies, which may be empty.
__device__ void CommitCopies();
// Waits until all but the last `kPending` groups of the calling thread have arrived.
template <int kPending>
__device__ void WaitCopies();

// A place in shared memory at which bulk copies arrive, in phases that count from 0.
struct Arrival {
  uint64_t state;
};
// Prepares phases of `copies` copies each. One thread calls it, and a barrier follows.
__device__ void InitArrival(Arrival& arrival, int32_t copies);
// Copies asynchronously from global to shared memory, both 16-byte aligned; `bytes` is a multiple
// of 16. All threads of the block call it with the same arguments. The source must not change
// before the arrival. Memory that bulk copies write is not written otherwise.
__device__ void BulkCopy(void* shared, const void* global, int32_t bytes, Arrival& arrival);
// Waits until all copies of a phase have arrived, which the calling thread then sees. Between the
// first copies of two phases, every thread waits for the first one and passes a barrier.
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

// Returns 2^x with a relative error below 2^-22: exactly 1 for 0, and 0 where the result is
// subnormal.
__device__ float Exp2(float x);

}  // namespace sluice::kernels::cuda

#ifdef SLUICE_SIMT
#include "kernels/simt/device_code.h"
#else
#include "kernels/simt/simt_nvcc.h"
#endif
