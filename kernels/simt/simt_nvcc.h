// The implementation of kernels/simt/simt.h on a GPU; included by it.
#pragma once

#include "kernels/simt/kernel_registry.h"

namespace sluice::kernels::cuda {

template <typename Argument>
Kernel KernelOf(const char* name, void (*function)(Argument)) {
  const Kernel kernel = {name, reinterpret_cast<const void*>(function)};
  simt::RegisterKernel(kernel, __PRETTY_FUNCTION__);
  return kernel;
}

inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

__device__ inline int32_t ThreadIndex() { return static_cast<int32_t>(threadIdx.x); }
__device__ inline int32_t BlockThreads() { return static_cast<int32_t>(blockDim.x); }
__device__ inline int32_t BlockIndex() { return static_cast<int32_t>(blockIdx.x); }
__device__ inline int32_t GridBlocks() { return static_cast<int32_t>(gridDim.x); }

// CudaStream looks for this instruction to find the kernels that use it.
__device__ inline void WaitForPrevious() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ inline void SyncBlock(CallSite) { __syncthreads(); }
__device__ inline void SyncWarp(CallSite) { __syncwarp(); }

template <typename T>
__device__ inline T Shuffle(T value, int32_t lane, CallSite) {
  return __shfl_sync(kAllLanes, value, lane);
}
template <typename T>
__device__ inline T ShuffleXor(T value, int32_t mask, CallSite) {
  return __shfl_xor_sync(kAllLanes, value, mask);
}
template <typename T>
__device__ inline T ShuffleUp(T value, int32_t delta, CallSite) {
  return __shfl_up_sync(kAllLanes, value, delta);
}
__device__ inline uint32_t Ballot(bool predicate, CallSite) {
  return __ballot_sync(kAllLanes, predicate);
}
__device__ inline uint32_t MatchLanes(uint32_t value, CallSite) {
  return __match_any_sync(kAllLanes, value);
}
__device__ inline int32_t CountBits(uint32_t bits) { return __popc(bits); }

template <typename T>
__device__ inline T& SharedMemory() {
  extern __shared__ __align__(kSharedAlignment) unsigned char shared_memory[];
  return *reinterpret_cast<T*>(shared_memory);
}

__device__ inline int32_t AtomicAdd(int32_t* address, int32_t value) {
  return atomicAdd(address, value);
}
__device__ inline uint64_t AtomicAdd(uint64_t* address, uint64_t value) {
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  return atomicAdd(reinterpret_cast<unsigned long long*>(address), value);
}

template <typename T>
__device__ inline T LoadWhole(const void* from) {
  static_assert(alignof(T) == sizeof(T));
  return *static_cast<const T*>(from);
}
template <typename T>
__device__ inline void StoreWhole(const T& value, void* to) {
  static_assert(alignof(T) == sizeof(T));
  *static_cast<T*>(to) = value;
}

__device__ inline void CopyAsync(void* shared, const void* global, int32_t bytes) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes)
               : "memory");
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ inline void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ inline void Fence() { __threadfence(); }

// From compute capability 9.0 on, one thread starts a copy, and its bytes are counted as they
// arrive. On older GPUs, each thread copies 16 bytes at a time and arrives with its part.
__device__ inline uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
__device__ inline void InitArrivals(Arrival& arrival, int32_t copies, int32_t threads) {
#if __CUDA_ARCH__ >= 900
  const int32_t count = copies;
#else
  const int32_t count = copies * threads;
#endif
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(SharedAddress(&arrival)), "r"(count)
               : "memory");
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
__device__ inline void InitArrival(Arrival& arrival, int32_t copies) {
  InitArrivals(arrival, copies, BlockThreads());
}
__device__ inline void InitWarpArrival(Arrival& arrival, int32_t copies) {
  InitArrivals(arrival, copies, kWarp);
}
__device__ inline void ShareWithCopies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
// Copies by the `threads` threads that call it; the calling one has index `thread`.
__device__ inline void BulkCopyBy(int32_t thread, int32_t threads, void* shared, const void* global,
                                  int32_t bytes, Arrival& arrival) {
  const uint32_t to = SharedAddress(shared), at = SharedAddress(&arrival);
#if __CUDA_ARCH__ >= 900
  if (thread != 0) return;
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
               : "memory");
  if (bytes == 0) return;
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(at)
      : "memory");
#else
  for (int32_t i = thread * 16; i < bytes; i += threads * 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i),
                 "l"(static_cast<const char*>(global) + i)
                 : "memory");
  }
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at) : "memory");
#endif
}
__device__ inline void BulkCopy(void* shared, const void* global, int32_t bytes, Arrival& arrival) {
  BulkCopyBy(ThreadIndex(), BlockThreads(), shared, global, bytes, arrival);
}
__device__ inline void WarpBulkCopy(void* shared, const void* global, int32_t bytes,
                                    Arrival& arrival) {
  BulkCopyBy(Lane(), kWarp, shared, global, bytes, arrival);
}
__device__ inline void WaitArrival(Arrival& arrival, int32_t phase, CallSite) {
  const uint32_t at = SharedAddress(&arrival), parity = phase & 1;
  uint32_t arrived;
  do {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{ .reg .pred done; mbarrier.try_wait.parity.shared.b64 done, [%1], %2; "
        "selp.u32 %0, 1, 0, done; }"
        : "=r"(arrived)
        : "r"(at), "r"(parity)
        : "memory");
#else
    asm volatile(
        "{ .reg .pred done; mbarrier.test_wait.parity.shared.b64 done, [%1], %2; "
        "selp.u32 %0, 1, 0, done; }"
        : "=r"(arrived)
        : "r"(at), "r"(parity)
        : "memory");
#endif
  } while (arrived == 0);
}

template <bool kTransposed>
__device__ inline void LoadMatrices(const void* row, uint32_t (&to)[4], CallSite) {
  const auto from = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
  }
}

__device__ inline void MultiplyAdd(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                   CallSite) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline void MultiplyAdd(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                   CallSite) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline uint32_t RoundToPair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ inline float Exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

}  // namespace sluice::kernels::cuda
