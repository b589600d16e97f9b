// The implementation of kernels/simt/simt.h in the emulator; included by it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/simt/kernel_registry.h"

namespace sluice::simt {

// The machine's functions for device code (kernels/simt/machine.h).
int32_t ThreadIndex();
int32_t BlockThreads();
int32_t BlockIndex();
int32_t GridBlocks();
void WaitForPrevious();
void Barrier(const kernels::cuda::CallSite& site);
void WarpBarrier(const kernels::cuda::CallSite& site);
// Every lane passes `bits` and receives the bits of lane `from`. It is a fault if `from` is outside
// the warp.
uint64_t Exchange(uint64_t bits, int32_t from, const kernels::cuda::CallSite& site);
uint32_t Vote(bool predicate, const kernels::cuda::CallSite& site);
uint32_t Match(uint32_t value, const kernels::cuda::CallSite& site);
std::byte* Shared(size_t bytes);
uint64_t AddAtomically(void* address, size_t bytes, uint64_t value);
// Each is one access to device memory, at a multiple of `bytes`. The other operand is a local
// variable.
void Load(void* to, const void* from, size_t bytes);
void Store(void* to, const void* from, size_t bytes);
void CopyAsync(void* shared, const void* global, int32_t bytes);
void CommitCopies();
void WaitCopies(int pending_groups);
void Fence();
// `by_warp` tells whether each copy is made by one warp or by the block.
void InitArrival(void* arrival, int32_t copies, bool by_warp);
void BulkCopy(void* shared, const void* global, int32_t bytes, void* arrival, bool by_warp);
void WaitArrival(void* arrival, int32_t phase, const kernels::cuda::CallSite& site);
void ShareWithProducts();
void LoadMatrices(const void* row, bool transposed, uint32_t* to,
                  const kernels::cuda::CallSite& site);
void MultiplyAdd(float* d, const uint32_t* a, const uint32_t* b,
                 const kernels::cuda::CallSite& site);
void MultiplyAdd(int32_t* d, const uint32_t* a, const uint32_t* b,
                 const kernels::cuda::CallSite& site);
uint32_t RoundToPair(float low, float high);
float Exp2(float x);

}  // namespace sluice::simt

namespace sluice::kernels::cuda {

// Calls the kernel function. ThreadSanitizer does not instrument the call, because its argument is
// in the launch's record, which device code may not access otherwise.
template <typename Argument>
[[gnu::no_sanitize("thread")]] void CallKernel(const void* code, const void* argument) {
  reinterpret_cast<void (*)(Argument)>(const_cast<void*>(code))(
      *static_cast<const Argument*>(argument));
}

template <typename Argument>
Kernel KernelOf(const char* name, void (*function)(Argument)) {
  const Kernel kernel = {name, reinterpret_cast<const void*>(function), CallKernel<Argument>};
  simt::RegisterKernel(kernel, __PRETTY_FUNCTION__);
  return kernel;
}

inline int32_t ThreadIndex() { return simt::ThreadIndex(); }
inline int32_t BlockThreads() { return simt::BlockThreads(); }
inline int32_t BlockIndex() { return simt::BlockIndex(); }
inline int32_t GridBlocks() { return simt::GridBlocks(); }

inline void WaitForPrevious() { simt::WaitForPrevious(); }

inline void SyncBlock(CallSite site) { simt::Barrier(site); }
inline void SyncWarp(CallSite site) { simt::WarpBarrier(site); }

template <typename T>
T Shuffle(T value, int32_t lane, CallSite site) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = simt::Exchange(bits, lane, site);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <typename T>
T ShuffleXor(T value, int32_t mask, CallSite site) {
  return Shuffle(value, Lane() ^ mask, site);
}
template <typename T>
T ShuffleUp(T value, int32_t delta, CallSite site) {
  return Shuffle(value, Lane() < delta ? Lane() : Lane() - delta, site);
}
inline uint32_t Ballot(bool predicate, CallSite site) { return simt::Vote(predicate, site); }
inline uint32_t MatchLanes(uint32_t value, CallSite site) { return simt::Match(value, site); }
inline int32_t CountBits(uint32_t bits) { return std::popcount(bits); }

template <typename T>
T& SharedMemory() {
  static_assert(alignof(T) <= kSharedAlignment);
  return *reinterpret_cast<T*>(simt::Shared(sizeof(T)));
}

inline int32_t AtomicAdd(int32_t* address, int32_t value) {
  return static_cast<int32_t>(
      simt::AddAtomically(address, sizeof(value), static_cast<uint32_t>(value)));
}
inline uint64_t AtomicAdd(uint64_t* address, uint64_t value) {
  return simt::AddAtomically(address, sizeof(value), value);
}

template <typename T>
T LoadWhole(const void* from) {
  T value;
  simt::Load(&value, from, sizeof(T));
  return value;
}
template <typename T>
void StoreWhole(const T& value, void* to) {
  simt::Store(to, &value, sizeof(T));
}

inline void CopyAsync(void* shared, const void* global, int32_t bytes) {
  simt::CopyAsync(shared, global, bytes);
}
inline void CommitCopies() { simt::CommitCopies(); }
template <int kPending>
void WaitCopies() {
  simt::WaitCopies(kPending);
}

inline void Fence() { simt::Fence(); }
inline void InitArrival(Arrival& arrival, int32_t copies) {
  simt::InitArrival(&arrival, copies, /*by_warp=*/false);
}
inline void InitWarpArrival(Arrival& arrival, int32_t copies) {
  simt::InitArrival(&arrival, copies, /*by_warp=*/true);
}
inline void ShareWithCopies() { simt::ShareWithProducts(); }
inline void BulkCopy(void* shared, const void* global, int32_t bytes, Arrival& arrival) {
  simt::BulkCopy(shared, global, bytes, &arrival, /*by_warp=*/false);
}
inline void WarpBulkCopy(void* shared, const void* global, int32_t bytes, Arrival& arrival) {
  simt::BulkCopy(shared, global, bytes, &arrival, /*by_warp=*/true);
}
inline void WaitArrival(Arrival& arrival, int32_t phase, CallSite site) {
  simt::WaitArrival(&arrival, phase, site);
}

template <bool kTransposed>
void LoadMatrices(const void* row, uint32_t (&to)[4], CallSite site) {
  simt::LoadMatrices(row, kTransposed, to, site);
}

inline void MultiplyAdd(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                        CallSite site) {
  simt::MultiplyAdd(d, a, b, site);
}

inline void MultiplyAdd(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                        CallSite site) {
  simt::MultiplyAdd(d, a, b, site);
}

inline uint32_t RoundToPair(float low, float high) { return simt::RoundToPair(low, high); }
inline float Exp2(float x) { return simt::Exp2(x); }

}  // namespace sluice::kernels::cuda
