// Draws the times and lengths of the requests from a seed before anything is sent, so that the
// generator makes no decisions while it runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/enum_names.h"
#include "base/trace_file.h"

namespace sluice::load {

using std::chrono::nanoseconds;

enum class ArrivalKind {
  kExponential,  // a Poisson process
  kBursty,       // a Poisson process of burst_factor x rate, interrupted by silence
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
  double burst_factor = 4;                   // of kBursty: rate while on / mean rate, above 1
  double burst_mean_s = 0.5;                 // of kBursty: mean of an on period, exponential
  std::string lengths = "lognormal:64:0.8";  // see MakeLengths; or "trace" for its input_tokens
  int32_t cap = 256;                         // limit of the tokens of prompt and answer together
  int32_t max_tokens = 0;              // per request; 0 only scores, -1 does not send the parameter
  bool max_tokens_from_trace = false;  // use the trace's output_tokens instead
  uint64_t seed = 1;
};

struct Arrival {
  nanoseconds at{0};  // from the start of the phase
  int32_t tokens = 0;
  int32_t max_tokens = 0;  // as in WorkloadOptions
};

// Returns the arrivals in [0, duration) in order, with a mean of `rate` per second. A rate of 0
// with kTrace keeps the trace's own times. The same options, rate and duration give the same
// arrivals. Returns InvalidArgument that names the wrong option, or if there would be more than 20
// million arrivals.
absl::StatusOr<std::vector<Arrival>> MakeSchedule(const WorkloadOptions& options,
                                                  const std::vector<TraceRow>& trace, double rate,
                                                  nanoseconds duration);

}  // namespace sluice::load
