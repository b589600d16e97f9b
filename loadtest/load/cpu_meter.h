// What the load generator itself uses, for a client at its limit measures itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>

namespace sluice::load {

struct CpuUse {
  double cores = 0;           // of all threads together: 1 is one core kept busy
  double busiest_thread = 0;  // of the thread that used most
};

class CpuMeter {
 public:
  // Starts measuring this process.
  CpuMeter();
  // Since the start, in steps of a clock tick.
  CpuUse Read() const;

 private:
  std::map<int, int64_t> at_start_;  // ticks by thread id
  std::chrono::steady_clock::time_point start_;
};

}  // namespace sluice::load
