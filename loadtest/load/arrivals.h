// When requests arrive and how long they are, prepared before anything is sent, from a seed: the
// generator has nothing to decide while it runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/enum_names.h"
#include "loadtest/trace/trace_file.h"

namespace sluice::load {

using std::chrono::nanoseconds;

enum class ArrivalKind {
  kExponential,  // a Poisson process
  kBursty,       // on and off: a Poisson process of burst_factor x rate, interrupted by silence
  kConstant,     // evenly spaced
  kTrace,        // the times of the trace, stretched to the rate; the trace repeats when it ends
};

constexpr auto EnumNamesOf(ArrivalKind) {
  using enum ArrivalKind;
  return EnumNameTable<ArrivalKind>({{kExponential, "exponential"},
                                     {kBursty, "bursty"},
                                     {kConstant, "constant"},
                                     {kTrace, "trace"}});
}

struct WorkloadOptions {
  ArrivalKind arrivals = ArrivalKind::kExponential;
  double burst_factor = 4;                   // kBursty: rate while on / mean rate, above 1
  double burst_mean_s = 0.5;                 // kBursty: mean length of an on period, exponential
  std::string lengths = "lognormal:64:0.8";  // see MakeLengths; "trace": the trace's input_tokens
  int32_t cap = 256;       // tokens of prompt and answer together; what is longer is cut
  int32_t max_tokens = 0;  // to generate per request; 0: score only; -1: the parameter is not sent
  bool max_tokens_from_trace = false;  // the trace's output_tokens in place of max_tokens
  uint64_t seed = 1;
};

struct Arrival {
  nanoseconds at{0};  // from the start of the phase
  int32_t tokens = 0;
  int32_t max_tokens = 0;  // as in WorkloadOptions
};

// The arrivals in [0, duration) at a mean of `rate` per second, in order. A rate of 0 with kTrace
// keeps the trace's own times. The same options, rate and duration give the same arrivals.
// InvalidArgument names the wrong option; a schedule has at most 20 million arrivals.
absl::StatusOr<std::vector<Arrival>> MakeSchedule(const WorkloadOptions& options,
                                                  const std::vector<TraceRow>& trace, double rate,
                                                  nanoseconds duration);

}  // namespace sluice::load
