// The implementation of engine/cuda/device.h on the CPU. Queued work runs only when it is waited
// for, so that host memory that is reused too early, and memory that is released before its work is
// done, are found.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda/device.h"

namespace sluice::simt {

// The algorithms of a pretended library of dense layers.
enum class SimtDense {
  kInvariant,
  kVaries,           // sums run the other way if there are many rows
  kBackwards,        // sums run the other way: invariant, other bits
  kWorkspace,        // as kInvariant, but sums pass through a workspace
  kTrustsWorkspace,  // likewise, but the first row's sums begin with its content
  kDropsNaN,         // if there is a function, it makes a NaN 0
  kWrongFunction,    // if there is a function, its square is applied
  kUnfinished,       // the last column is not written
};

struct SimtOptions {
  uint64_t seed = 1;       // for the order of blocks and threads
  int32_t processors = 1;  // few, so that persistent kernels loop
  int64_t memory_bytes = 1 << 30;
  int64_t graph_bytes = 0;  // the part of memory_bytes that each captured graph takes
  int32_t shared_bytes_limit = 227 << 10;  // of a block
  // The algorithms of the library; if empty, there is no library. The first word of an algorithm is
  // its SimtDense. A kept algorithm may be one that is not offered here; another first word is
  // refused.
  std::vector<SimtDense> dense{};
};

class SimtDevice : public Device {
 public:
  // Makes live memory unreadable until it is written; a read gives NaN.
  virtual void Poison(void* begin, size_t bytes) = 0;
  // Makes the device lost from here on, as after a fault of its own.
  virtual void Lose(const std::string& fault) = 0;
};

std::unique_ptr<SimtDevice> MakeSimtDevice(const SimtOptions& options = {});

}  // namespace sluice::simt
