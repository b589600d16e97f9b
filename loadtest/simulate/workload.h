// Makes arrivals for the simulator from a trace file or from seeded generators.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/enum_names.h"
#include "engine/schedule/traffic.h"

namespace sluice::loadtest {

// Returns the input lengths of a trace (see ParseTrace), cut to `cap`, or InvalidArgument with the
// file and the problem. A sequence without tokens is an error.
absl::StatusOr<std::vector<int32_t>> ReadTraceLengths(const std::string& path, int32_t cap);

// The lengths of the generated workloads, all within [1, cap].
enum class Lengths {
  kLogNormal,  // median 600, like the prompts of a chat service
  kDrifting,   // three phases of equal count: short, long, two humps
  // User histories: many short ones, a heavy tail and a hump at the cap of the history.
  kRecommendation,
};
constexpr auto EnumNamesOf(Lengths) {
  using enum Lengths;
  return EnumNameTable<Lengths>(
      {{kLogNormal, "lognormal"}, {kDrifting, "drifting"}, {kRecommendation, "recommendation"}});
}
std::vector<int32_t> MakeLengths(Lengths kind, size_t count, int32_t cap, std::mt19937_64* random);

enum class Process {
  kPoisson,
  kBursty,  // Poisson, at four times the mean rate for a fifth of the time
};
constexpr auto EnumNamesOf(Process) {
  using enum Process;
  return EnumNameTable<Process>({{kPoisson, "poisson"}, {kBursty, "bursty"}});
}
// Returns arrivals of sequences with these lengths, one step each, from time zero on.
// `tokens_per_second` is the mean over all of them.
std::vector<Arrival> MakeArrivals(Process process, std::span<const int32_t> lengths,
                                  double tokens_per_second, std::mt19937_64* random);

}  // namespace sluice::loadtest
