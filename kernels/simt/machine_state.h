// The state that a Machine keeps for the threads and arrivals of a block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "kernels/simt/fiber.h"
#include "kernels/simt/machine.h"
#include "kernels/simt/memory.h"
#include "kernels/simt/warpgroup.h"

namespace sluice::simt {

inline constexpr int32_t kCopyBytes = 16;

// The first cache line has all members that a collective and a switch to the thread access.
struct alignas(64) Machine::Thread {
  enum class State { kRunnable, kAtBarrier, kAtCollective, kAtArrival, kDone };
  struct Copy {
    std::byte* to;
    const std::byte* from;
    int32_t bytes;
    int64_t group;
    std::byte seen[kCopyBytes];  // the source at the time of the request
  };

  Fiber fiber;
  State state;
  int line;  // of the call where the thread waits
  const char* file;
  WarpFunction function;
  const void* in;
  void* out;
  std::deque<Copy> copies;
  int64_t groups;   // committed
  bool has_waited;  // for the previous launch
  GroupProducts products;
  std::vector<Actor> shares;  // the calls of ShareWithProducts

  bool WaitsWith(const Thread& other) const {
    return state == other.state && line == other.line && function == other.function &&
           (file == other.file || std::strcmp(file, other.file) == 0);
  }
};

struct Machine::ArrivalState {
  struct Copy {
    std::byte* to;
    const std::byte* from;
    std::vector<std::byte> seen;  // the source at the time of the request
  };
  struct Phase {
    uint32_t number;  // index among the phases of the block
    bool done = false;
    std::vector<Copy> copies{};
  };

  int32_t copies;   // of a phase
  int32_t threads;  // that make a copy together
  int64_t all_calls = 0;
  std::vector<Phase> phases{};  // the phases that have started
};

}  // namespace sluice::simt
