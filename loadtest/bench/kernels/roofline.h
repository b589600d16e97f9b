// Measures the machine's peak performance in the same run as the kernels. Results are given as
// fractions of it, because other load on the machine slows both.
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cpu/context.h"

namespace sluice::kernels {

// Returns seconds. With one thread this is the calling thread's CPU time, so that other load on the
// machine does not count; otherwise it is wall time.
double Now(const Context& context);

// The times of one contender. Their median is robust against bursts of other load on the machine.
class Series {
 public:
  void Add(double seconds) { seconds_.push_back(seconds); }
  double Median() const;
  std::span<const double> seconds() const { return seconds_; }

 private:
  std::vector<double> seconds_;
};

// Calls `run` once to warm the caches, then repeatedly for some milliseconds, and adds the time of
// one call to `series`.
template <typename Run>
void Measure(const Context& context, Series& series, Run run) {
  constexpr double kEnough = 3e-3;
  run();
  const double start = Now(context);
  double elapsed = 0;
  int calls = 0;
  do {
    run();
    ++calls;
    elapsed = Now(context) - start;
  } while (elapsed < kEnough);
  series.Add(elapsed / calls);
}

// The instructions whose peak is measured: the profile's fastest (bf16 if it multiplies in bf16),
// or its int8 instructions.
enum class Peak { kProfile, kInt8 };

// The peaks of all threads of a pool together: multiply-adds in registers, and reads of memory much
// larger than the caches.
class Roofline {
 public:
  explicit Roofline(const Context& context, Peak peak = Peak::kProfile);

  // Measures both peaks once more. Call it between the runs of the contenders.
  void Probe();

  // Adds the counters peak_GFLOPs (peak_int8_GFLOPs for int8) and read_GBps.
  void Report(benchmark::State& state) const;
  // Adds the counter <name>_us and its fractions of the peaks, <name>_of_flops and <name>_of_read.
  void Report(benchmark::State& state, const char* name, const Series& times, double flops,
              double bytes) const;

 private:
  // Each returns the work that it did: operations or bytes.
  double Multiply() const;
  double Read() const;

  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };

  const Context context_;
  const Peak peak_;
  const std::unique_ptr<std::byte, Free> memory_;
  Series multiply_, read_;
  double flops_ = 0, bytes_ = 0;  // of one probe
};

}  // namespace sluice::kernels
