// The entry of every fuzz target. It limits the processor time and the memory of each input.
//
// The limits grow linearly with the bytes of the input, so an input that needs quadratic time or
// memory fails long before it would take seconds. The unit of time is the time in which this
// machine, with the sanitizers of this build, adds up one byte.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "tests/support/allocation_counter.h"

namespace sluice::fuzz {
namespace {

// The processor time of this thread. It leaves out the time in which other threads run.
double Seconds() {
  timespec now{};
  SLUICE_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Returns the time of one unit: the least of some measurements.
double Unit() {
  const std::vector<uint8_t> bytes(1 << 20, 1);
  double least = 1;
  for (int i = 0; i < 5; ++i) {
    const double began = Seconds();
    volatile uint64_t sum = 0;
    for (const uint8_t byte : bytes) sum = sum + byte;
    least = std::min(least, (Seconds() - began) / static_cast<double>(bytes.size()));
  }
  return least;
}

struct Cost {
  double units = 0;
  int64_t bytes = 0;  // of memory
  bool accepted = false;
};

Cost CostOf(const uint8_t* data, size_t size, double unit) {
  const MemoryPeak memory;
  const double began = Seconds();
  const bool accepted = TestInput(data, size);
  return {.units = (Seconds() - began) / unit, .bytes = memory.bytes(), .accepted = accepted};
}

// Rejected inputs stay out of the corpus of a target that must accept some. Otherwise nearly all of
// the corpus would be rejected at its first fault, and so would what is made from it.
#ifdef SLUICE_FUZZ_KEEPS_REJECTED
constexpr bool kKeepsRejected = true;
#else
constexpr bool kKeepsRejected = false;
#endif

double most_time = 0, most_memory = 0;  // shares of the limits
InputCounts counts;

}  // namespace

InputCounts Inputs() { return counts; }

std::string Costliest() {
  char text[128];
  std::snprintf(text, sizeof(text),
                "at most %.1f %% of the time and %.1f %% of the memory that an input may take",
                100 * most_time, 100 * most_memory);
  return text;
}

}  // namespace sluice::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::fuzz;
  static const double unit = [] {
    const uint8_t none = 0;
    TestInput(&none, 0);  // makes the objects that all inputs share
    return Unit();
  }();
  constexpr InputLimits limits;
  const double most_units = limits.first_units + limits.units * static_cast<double>(size);
  const double most_bytes = limits.first_bytes + limits.bytes * static_cast<double>(size);
  Cost cost = CostOf(data, size, unit);
  // Another process may have taken the caches of this thread.
  for (int again = 0; again < 3 && cost.units > most_units; ++again) {
    cost.units = std::min(cost.units, CostOf(data, size, unit).units);
  }
  ++counts.inputs;
  if (cost.accepted) ++counts.accepted;
  const double time = cost.units / most_units;
  const double memory = static_cast<double>(cost.bytes) / most_bytes;
  most_time = std::max(most_time, time);
  most_memory = std::max(most_memory, memory);
  if (time <= 1 && memory <= 1) return kKeepsRejected || cost.accepted ? 0 : -1;
  std::fprintf(stderr,
               "an input of %zu bytes took %.0f units of time (at most %.0f) and %lld bytes"
               " of memory (at most %.0f)\n",
               size, cost.units, most_units, static_cast<long long>(cost.bytes), most_bytes);
  SLUICE_CHECK(time <= 1 && memory <= 1);
  return 0;
}
