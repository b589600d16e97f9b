// Counts the costs that the emulator's launches would have in a GPU's memory system.
//
//   CostMeter meter;
//   Launch(stream, kernel, shape, args);
//   stream.Synchronize();
//   EXPECT_EQ(meter.launches()[0].sectors, meter.launches()[0].ideal_sectors);
//
// The emulator runs the lanes of a warp one after another. It reconstructs an access of the whole
// warp afterwards: the i-th access that each lane makes from one place in the code since the warp's
// last barrier or collective. This has limits:
// - Lanes that take different paths count as if they met again at the next access from the same
//   place. A GPU may run their accesses separately, so the counters are lower bounds.
// - In nested loops whose inner trip counts differ between lanes, accesses of different iterations
//   of the outer loop may be combined.
// - The accesses are the ones that the host's compiler emits. Like nvcc, it removes a repeated
//   read, but it may decide differently in single cases. Local variables are registers.
// - An assigned struct counts as accesses to its members if the compiler splits it, and otherwise
//   as the widest accesses that its address allows. LoadWhole and StoreWhole count as one access.
// - An atomic addition is one instruction, even if its result is not used. Additions of a warp to
//   one address are not combined; nvcc may combine them if their results are not used.
// - The products of a warpgroup (kernels/simt/warpgroup.h) read shared memory without costs.
// - A bulk copy is one instruction, although its warp also announces the number of bytes.
// - Caches are not modelled: two accesses to the same bytes count twice.
// - Arithmetic, moves and branches are not counted. The machine code has their number
//   (tools/sass_loops.py).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/simt/stream.h"

namespace sluice::simt {

// Additions by AtomicAdd.
struct AtomicCosts {
  int64_t count = 0;
  int64_t worst_in_warp = 0;    // the most on one address in one instruction of a warp
  int64_t worst_in_launch = 0;  // the most on one address; in shared memory, of one block
};

// The instructions that one warp executes in a launch, by their kind in machine code.
struct WarpCosts {
  int64_t products = 0;  // matrix products
  int64_t shared = 0;    // accesses to shared memory
  int64_t global = 0;    // accesses to global memory, and copies by each thread
  int64_t others = 0;    // barriers, waits, bulk copies, and exchanges between lanes

  int64_t all() const { return products + shared + global + others; }
};

// The costs of a launch. Instructions are counted per warp.
struct LaunchCosts {
  std::string kernel;  // the kernel's name
  int64_t blocks = 0;
  int64_t working_blocks = 0;  // blocks that write to global memory

  // Global memory.
  int64_t bytes = 0;          // requested by all lanes
  int64_t sectors = 0;        // pieces of 32 bytes that accesses touch
  int64_t ideal_sectors = 0;  // sectors if the distinct bytes of each access were contiguous
  // The number of instructions that access 1, 2, 4, 8 and 16 bytes a lane.
  std::array<int64_t, 5> widths = {};
  int64_t bulk_copies = 0;
  AtomicCosts global_atomics;

  // Shared memory. It has 32 banks of 4 bytes. Accesses of 8 and 16 bytes are made by half and a
  // quarter of a warp at a time. Different words of one bank take one pass each.
  int64_t conflicts = 0;   // passes beyond one for each part of a warp
  int64_t wavefronts = 0;  // all passes
  AtomicCosts shared_atomics;

  int64_t products = 0;      // calls of MultiplyAdd and, by each warp, of MultiplyAddGroup
  int64_t instructions = 0;  // all of the above, barriers, collectives and waits for copies
  WarpCosts busiest_warp;    // the warp of a block that executes the most instructions
};

// While a meter exists, it counts the launches that the calling thread runs in an emulator. They
// then take several times as long.
class CostMeter {
 public:
  CostMeter();
  ~CostMeter();
  CostMeter(const CostMeter&) = delete;
  CostMeter& operator=(const CostMeter&) = delete;

  const std::vector<LaunchCosts>& launches() const { return launches_; }

  // The emulator calls the functions below.

  // Returns the calling thread's meter; null if it has none.
  static CostMeter* Current();

  enum class Space : uint8_t { kGlobal, kShared };
  enum class Kind : uint8_t { kRead, kWrite, kAtomic };

  void BeginLaunch(const kernels::cuda::Kernel& kernel, const kernels::cuda::LaunchShape& shape);
  // Ends all accesses of the block.
  void EndBlock();
  // Notes an access of a thread from the place `site` of the code.
  void Access(int32_t thread, const void* site, Space space, Kind kind, uintptr_t address,
              size_t bytes);
  // Notes an asynchronous copy, which is one instruction: `bytes` are read, and 16 are written.
  void Copy(int32_t thread, const void* site, uintptr_t to, uintptr_t from, size_t bytes);
  // Notes a bulk copy to shared memory of whole sectors, by words of all banks.
  void Bulk(uintptr_t from, size_t bytes);
  // Notes an instruction without an access.
  void Other(int32_t thread, const void* site);
  // The lanes of the warp have met in a collective or a barrier, which counts as one instruction.
  void Meet(int32_t warp);
  // The collective where the lanes met is a matrix product.
  void Product();
  // The collective where the lanes met is an access, which is counted already.
  void Accessed();

 private:
  static constexpr int32_t kLanes = 32;
  enum class Event : uint8_t { kAccess, kCopy, kOther };

  // The common properties of the accesses of an instruction.
  struct Instruction {
    const void* site;
    uint32_t width;  // bytes of a lane, at most
    Event event;
    Space space;
    Kind kind;

    bool operator==(const Instruction&) const = default;
  };
  struct Hash {
    size_t operator()(const Instruction& instruction) const;
  };
  // One execution of an instruction by a warp.
  struct Round {
    uint32_t lanes = 0;  // bit i: lane i takes part
    std::array<uint8_t, kLanes> bytes;
    std::array<uintptr_t, kLanes> addresses;
  };
  // The rounds of an instruction since the warp's lanes last met.
  struct Rounds {
    std::array<uint32_t, kLanes> count = {};  // of each lane
    std::vector<Round> rounds;                // at least the largest count, with spare ones
  };
  using Entry = std::pair<const Instruction, Rounds>;
  struct Warp {
    std::unordered_map<Instruction, Rounds, Hash> instructions;
    std::vector<Entry*> running;         // entries with rounds
    std::array<Entry*, 64> recent = {};  // by place in device code
    WarpCosts costs;                     // in the current block
  };
  using AtomicCounts = std::unordered_map<uintptr_t, int64_t>;  // by address

  void Note(int32_t thread, const Instruction& instruction, uintptr_t address, size_t bytes);
  void Conclude(Warp& warp);
  void Count(Warp& warp, const Instruction& instruction, const Round& round);
  void CountGlobal(const Instruction& instruction, const Round& round);
  void CountShared(const Instruction& instruction, const Round& round);
  static void CountAtomics(const Round& round, AtomicCosts& costs, AtomicCounts& counts);

  CostMeter* const outer_;
  std::vector<LaunchCosts> launches_;
  std::vector<Warp> warps_;
  int32_t met_ = 0;  // the warp whose lanes met last
  bool block_works_ = false;
  AtomicCounts global_atomics_, shared_atomics_;
};

}  // namespace sluice::simt
