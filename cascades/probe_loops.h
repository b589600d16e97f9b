// The loops of probe_runs.h, one source for each architecture.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/profile.h"

namespace sluice::probe {

inline constexpr int kChains = 12;  // more than latency times throughput, fewer than registers

// Makes the compiler compute `value` and assume nothing about it afterwards.
template <typename T>
void Keep(T& value) {
  asm volatile("" : "+m"(value));
}

struct MultiplyAdds {
  void (*run)(int64_t steps);
  double flops;  // per step
};

MultiplyAdds MultiplyAddsOf(kernels::Profile profile);
MultiplyAdds Int8MultiplyAddsOf(kernels::Profile profile);

inline constexpr int kStreams = 4;  // a single stream would wait for its prefetcher
inline constexpr int64_t kLine = 64;
inline constexpr int64_t kAhead = 32 * kLine;

// Reads kStreams streams of `part` bytes.
using Reader = void (*)(const std::byte* begin, int64_t part);
Reader ReaderOf(kernels::Profile profile);

}  // namespace sluice::probe
