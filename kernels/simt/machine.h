// An emulator that runs launches of device code on the CPU, one block after another. Each thread of
// a block is a fiber. A seed determines the random order of the threads.
//
// A fault ends the launch where it happens, before it does harm. Faults are: an access that Memory
// rejects, a barrier or collective that some threads do not reach or reach elsewhere, a bad
// asynchronous copy, an arrival that never comes, and a launch that overlaps the previous one and
// does not wait for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/simt/costs.h"
#include "kernels/simt/fiber.h"
#include "kernels/simt/memory.h"
#include "kernels/simt/stream.h"

namespace sluice::simt {

// A launch with its argument by value, as a stream or a graph keeps it.
struct LaunchRecord {
  kernels::cuda::Kernel kernel;
  kernels::cuda::LaunchShape shape;
  std::unique_ptr<std::byte[]> argument;
};

// The computation of a collective, which runs once all lanes have reached it. Computes the outputs
// of the 32 lanes from their inputs.
using WarpFunction = void (*)(const void* const in[32], void* const out[32]);

class GroupProducts;
class Machine;

// While it exists, the calling thread runs the emulator's own code, which is not device code
// although a fiber runs it.
class OutsideDeviceCode {
 public:
  OutsideDeviceCode();
  ~OutsideDeviceCode();
  OutsideDeviceCode(const OutsideDeviceCode&) = delete;
  OutsideDeviceCode& operator=(const OutsideDeviceCode&) = delete;

 private:
  Machine* const machine_;
};

class Machine {
 public:
  Machine(Memory& memory, uint64_t seed);
  ~Machine();

  // Runs a launch. Returns an empty string, or a description of the first fault: kernel, block,
  // thread and error.
  std::string Run(const LaunchRecord& launch);

  // Returns the machine whose device code the calling thread runs; null outside device code and
  // inside the functions below.
  static Machine* Current() { return current_machine_; }

  // Device code calls these functions. They do not return after a fault.
  [[noreturn]] void Fail(const std::string& what);
  int32_t thread() const { return current_; }
  int32_t block() const { return block_; }
  const kernels::cuda::LaunchShape& shape() const { return launch_->shape; }
  // It is a fault if the address is not a multiple of `alignment`, as on a GPU. `site` is the place
  // in device code; costs identify instructions by it.
  void Touch(uintptr_t address, size_t bytes, Access access, const void* site,
             size_t alignment = 1);
  // Does the same, without a check of the alignment, in the most frequent cases. Otherwise returns
  // false and notes nothing.
  [[gnu::always_inline]] bool TouchQuickly(uintptr_t address, size_t bytes, Access access,
                                           const void* site) {
    return is_plain_ && memory_.NoteQuickly(address, bytes, access, actor_, site);
  }
  // Returns whether the address is on the stack of the running thread.
  bool OnStack(uintptr_t address) const { return address - stack_ < Fiber::kStackBytes; }
  // Reads 16 aligned bytes of shared memory. The access has costs unless `site` is null.
  void ReadSharedRow(const void* row, const void* site);
  void WaitForPrevious();
  void Barrier(const char* file, int line);
  // A null `function` makes this a barrier of the warp.
  void Collective(WarpFunction function, const void* in, void* out, const char* file, int line);
  std::byte* Shared(size_t bytes);
  void CopyAsync(void* shared, const void* global, int32_t bytes, const void* site);
  void CommitCopies(const void* site);
  void WaitCopies(int pending_groups, const void* site);
  void Fence(const void* site);
  void NoteAtomic(uintptr_t address);
  void InitArrival(void* arrival, int32_t copies, bool by_warp, const void* site);
  void BulkCopy(void* shared, const void* global, int32_t bytes, void* arrival, bool by_warp,
                const void* site);
  void WaitArrival(void* arrival, int32_t phase, const char* file, int line, const void* site);
  // The products of a warpgroup (kernels/simt/group_products.h).
  GroupProducts& products();
  void ShareWithProducts();
  // Notes that a product reads shared memory, either when it is issued or after it has been waited
  // for.
  void ReadForProduct(const std::byte* from, size_t bytes, bool issued);

 private:
  struct Thread;
  struct ArrivalState;

  static void EntryPoint(void* machine);
  void RunBlock();
  // Suspends the current thread, which waits, is done or has failed. Switches to another thread, or
  // to RunBlock if no thread can run. Returns when another thread switches back to this one.
  void Wait();
  // Takes a random thread from runnable_ and makes it the current one.
  void ChooseThread();
  bool IsShared(uintptr_t address) const;
  // Checks and notes an access. Returns whether it is to shared memory.
  bool Check(uintptr_t address, size_t bytes, Access access, const void* site);
  void Gather(int32_t warp);
  void ReleaseBlock();
  void Wake(int32_t first, int32_t count);
  void ReportStuck();
  void FinishCopy(Thread& thread);
  ArrivalState& ArrivalAt(void* arrival, const void* site);
  void FinishPhase(ArrivalState& arrival, int32_t phase);
  bool OwesWait(const Thread& thread) const;
  bool HasShared(const Actor& writer) const;
  Actor ActorOf(int32_t thread) const;
  std::string Where(int32_t thread) const;

  Memory& memory_;
  std::mt19937_64 random_;
  uint32_t launches_ = 0;
  std::vector<Thread> threads_;

  std::byte* shared_ = nullptr;  // a buffer of memory_, kept from launch to launch

  // The current launch.
  const LaunchRecord* launch_ = nullptr;
  CostMeter* meter_ = nullptr;  // null if costs are not counted
  std::string fault_;

  // The current block.
  int32_t block_ = 0;
  void* scheduler_ = nullptr;  // the stack of RunBlock while a thread runs
  int32_t current_ = 0;        // thread
  uintptr_t stack_ = 0;        // the lowest address of its stack
  uint32_t actor_ = 0;         // its number in memory_
  // Whether no costs are counted and the thread need not wait for the previous launch.
  bool is_plain_ = false;
  std::vector<int32_t> runnable_;
  int32_t at_barrier_ = 0;
  uint32_t block_epoch_ = 0;
  struct WarpState {
    int32_t arrived = 0;
    uint32_t epoch = 0;
    uint32_t number = 0;  // of its first thread in memory_; 0 after a barrier
  };
  std::vector<WarpState> warps_;
  std::map<uintptr_t, ArrivalState> arrivals_;

  friend class OutsideDeviceCode;
  static constinit inline thread_local Machine* current_machine_ = nullptr;
};

inline OutsideDeviceCode::OutsideDeviceCode()
    : machine_(std::exchange(Machine::current_machine_, nullptr)) {}
inline OutsideDeviceCode::~OutsideDeviceCode() { Machine::current_machine_ = machine_; }

}  // namespace sluice::simt
