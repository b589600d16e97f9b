// Computes figures from the calls of a phase. Every latency of the phase is kept, so percentiles
// are exact and not rounded to the bins of a histogram.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "loadtest/load/outcome.h"
#include "loadtest/load/run.h"

namespace sluice::load {

struct Distribution {
  int64_t count = 0;
  nanoseconds mean{0}, min{0}, p50{0}, p90{0}, p95{0}, p99{0}, p999{0}, max{0};
};
Distribution Summarise(std::vector<nanoseconds> values);

struct Objective {
  nanoseconds latency = std::chrono::milliseconds(100);
  double percentile = 99;  // the percentage of all calls that must be answered within `latency`
};

// Figures of one second of the phase, by scheduled time unless stated otherwise.
struct Second {
  int64_t arrivals = 0;
  int64_t answers = 0;  // kOk, by the time of the answer
  int64_t tokens = 0;   // of these answers
  std::array<int64_t, kOutcomes> outcomes{};
  nanoseconds p50{0}, p99{0};  // latency of kOk
};

struct PhaseStats {
  int64_t calls = 0;         // calls due after the warm-up; the figures below cover these calls
  double offered_per_s = 0;  // arrivals
  double goodput_per_s = 0;  // kOk calls within the objective
  double within = 0;         // their share of all calls, 0 to 1
  bool meets_objective = false;
  std::array<int64_t, kOutcomes> outcomes{};
  Distribution latency;   // of kOk calls, from the scheduled time
  Distribution service;   // of kOk calls, from sending, as a closed-loop client measures it
  Distribution first;     // until the first part of a streamed answer; empty without parts
  Distribution rejected;  // of kRejected calls, from sending
  Distribution lateness;  // of the client: sent - scheduled of every call that was sent
  std::vector<std::pair<double, double>> cdf;  // (percent, latency in ms) of kOk calls

  // Rates by the time of the answer: kOk calls that ended after the warm-up and before the end, and
  // their prompt tokens.
  double answered_per_s = 0;
  double tokens_per_s = 0;

  // These figures cover the whole phase, including the warm-up.
  int64_t wrong = 0;  // the number of calls that ended in kWrong
  std::vector<Second> seconds;
};

PhaseStats Analyse(const PhaseData& data, nanoseconds warm_up, const Objective& objective);

}  // namespace sluice::load
