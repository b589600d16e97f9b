// engine/cuda/device.h on the CPU. Work is queued and runs only when somebody waits for it, so that
// host memory which is reused too early, and memory released under work, show.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/cuda/device.h"

namespace sluice::simt {

struct SimtOptions {
  uint64_t seed = 1;       // of the order of blocks and threads
  int32_t processors = 1;  // few, so that persistent kernels loop
  int64_t memory_bytes = 1 << 30;
};

class SimtDevice : public Device {
 public:
  // Makes live memory unreadable until it is written: NaN to whoever reads it all the same.
  virtual void Poison(void* begin, size_t bytes) = 0;
  // Graphs captured so far.
  virtual int64_t captures() const = 0;
};

std::unique_ptr<SimtDevice> MakeSimtDevice(const SimtOptions& options = {});

}  // namespace sluice::simt
