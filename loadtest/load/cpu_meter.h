// Measures the load generator's own CPU use. A client at its limit would measure only itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>

namespace sluice::load {

struct CpuUse {
  double cores = 0;           // of all threads together; 1 is one busy core
  double busiest_thread = 0;  // of the thread with the highest use
};

class CpuMeter {
 public:
  // Starts measuring this process.
  CpuMeter();
  // Returns the use since the start, in steps of a clock tick.
  CpuUse Read() const;

 private:
  std::map<int, int64_t> at_start_;  // ticks by thread id
  std::chrono::steady_clock::time_point start_;
};

}  // namespace sluice::load
