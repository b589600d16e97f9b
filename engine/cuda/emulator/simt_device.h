// engine/cuda/device.h on the CPU. Work is queued and runs only when somebody waits for it, so that
// host memory which is reused too early, and memory released under work, show.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda/device.h"

namespace sluice::simt {

// Algorithms of a pretended library of dense layers.
enum class SimtDense {
  kInvariant,
  kVaries,           // its sums run the other way where there are many rows
  kBackwards,        // its sums run the other way: invariant, other bits
  kWorkspace,        // as kInvariant, but sums pass through a workspace
  kTrustsWorkspace,  // and the first row's begin with what lies there
  kDropsNaN,         // where a function is to be applied, a NaN becomes 0
  kWrongFunction,    // where a function is to be applied, it is its square
  kUnfinished,       // the last column is not written
};

struct SimtOptions {
  uint64_t seed = 1;       // of the order of blocks and threads
  int32_t processors = 1;  // few, so that persistent kernels loop
  int64_t memory_bytes = 1 << 30;
  int64_t graph_bytes = 0;  // of that, taken by each captured graph
  // None: there is no such library. The first word of an algorithm is its SimtDense, which a kept one may
  // be of though it is not offered here; with another word it is refused.
  std::vector<SimtDense> dense{};
};

class SimtDevice : public Device {
 public:
  // Makes live memory unreadable until it is written: NaN to whoever reads it all the same.
  virtual void Poison(void* begin, size_t bytes) = 0;
  // From here on the device is lost, as after a fault of its own.
  virtual void Lose(const std::string& fault) = 0;
};

std::unique_ptr<SimtDevice> MakeSimtDevice(const SimtOptions& options = {});

}  // namespace sluice::simt
