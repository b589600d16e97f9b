// Reports the figures of `sluice-bench generate` as JSON and as tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "loadtest/bench/daemon/rounds.h"
#include "loadtest/load/run.h"
#include "nlohmann/json.hpp"

namespace sluice::loadtest {

// The figures of one phase of one arm. Percentiles are over the requests.
struct GenerateFigures {
  double tokens_per_s = 0;    // of answers that ended after the warm-up and before the end
  double requests_per_s = 0;  // of the same answers
  // These cover the requests that were sent in that time:
  double first_p50_ms = 0, first_p99_ms = 0;      // until the first token
  double between_p50_ms = 0, between_p99_ms = 0;  // a request's mean time between two tokens
  // These cover the whole phase:
  int64_t calls = 0, failed = 0;
  int64_t tokens = 0;           // of the answers
  double tokens_per_cpu_s = 0;  // per daemon CPU second, which other work hardly changes
};

// Returns the figures of a phase. `answer_tokens` is indexed by payload, and `cpu_s` is the
// daemon's CPU time in the phase.
GenerateFigures FiguresOf(const load::PhaseData& data, absl::Span<const int32_t> answer_tokens,
                          load::nanoseconds warm_up, double cpu_s);

// Static and continuous batches with the same traffic, by round.
struct BatchingResult {
  int outstanding = 0;                                 // of a closed loop
  double rate = 0;                                     // requests per second of an open loop
  std::vector<GenerateFigures> fixed{}, continuous{};  // [rounds]
};

// Continuous batching at one concurrency.
struct ConcurrencyResult {
  int outstanding = 0;
  std::vector<GenerateFigures> rounds{};
};

struct GenerateResult {
  std::vector<BatchingResult> batching;
  std::vector<ConcurrencyResult> concurrency;
};

// Returns continuous / static tokens per second, by round.
Spread ThroughputRatio(const BatchingResult& result);
// Returns continuous / static for a percentile of the time to first token, by round.
Spread FirstTokenRatio(const BatchingResult& result, double GenerateFigures::*percentile);

nlohmann::json GenerateJson(const GenerateResult& result);
std::string GenerateTables(const GenerateResult& result);  // Markdown

}  // namespace sluice::loadtest
