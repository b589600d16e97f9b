// What the machine can do at most, measured beside the kernels in the same run, so that figures are
// fractions and neighbours on the machine slow both sides of them.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/cpu/context.h"

namespace sluice::kernels {

// Seconds: CPU time of the calling thread where it works alone, so that neighbours on the machine
// do not count as work, else wall time.
double Now(const Context& context);

// Times of one contender; their median forgives a neighbour's bursts.
class Series {
 public:
  void Add(double seconds) { seconds_.push_back(seconds); }
  double Median() const;

 private:
  std::vector<double> seconds_;
};

// Calls `run` once to warm the caches, then as often as takes some milliseconds, and adds the time
// of one call to `series`.
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

// The peaks of all threads of a pool together: multiply-adds in registers with the profile's
// fastest instructions (bf16 where it multiplies in bf16), and reads of memory far larger than the
// caches.
class Roofline {
 public:
  explicit Roofline(const Context& context);

  // Measures both once more. Call it between the runs of the contenders.
  void Probe();

  // Adds peak_GFLOPs and read_GBps.
  void Report(benchmark::State& state) const;
  // Adds <name>_us and what it is of the peaks: <name>_of_flops and <name>_of_read.
  void Report(benchmark::State& state, const char* name, const Series& times, double flops,
              double bytes) const;

 private:
  void Multiply() const;
  void Read() const;

  struct Free {
    void operator()(uint64_t* p) const { std::free(p); }
  };

  const Context context_;
  const std::unique_ptr<uint64_t, Free> memory_;
  Series multiply_, read_;
};

}  // namespace sluice::kernels
