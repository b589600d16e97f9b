// Figures of `sluice-bench generate`, as JSON and as tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "loadtest/bench/daemon/rounds.h"
#include "loadtest/load/run.h"
#include "nlohmann/json.hpp"

namespace sluice::loadtest {

// What one phase of one arm came to. Percentiles are over the requests.
struct GenerateFigures {
  double tokens_per_s = 0;    // of the answers that ended after the warm-up, before the end
  double requests_per_s = 0;  // likewise
  // Of the requests that were sent then:
  double first_p50_ms = 0, first_p99_ms = 0;      // until the first token
  double between_p50_ms = 0, between_p99_ms = 0;  // a request's mean time between two tokens
  // Of the whole phase:
  int64_t calls = 0, failed = 0;
  int64_t tokens = 0;           // of the answers
  double tokens_per_cpu_s = 0;  // of the daemon's processor time, which other work hardly changes
};

// `answer_tokens` by payload, `cpu_s` of the daemon in the phase.
GenerateFigures FiguresOf(const load::PhaseData& data, absl::Span<const int32_t> answer_tokens,
                          load::nanoseconds warm_up, double cpu_s);

// Static batches against continuous ones under the same traffic, round by round.
struct BatchingResult {
  int outstanding = 0;                                 // closed loop
  double rate = 0;                                     // open loop: requests per second
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

// Tokens per second, continuous / static, round by round.
Spread ThroughputRatio(const BatchingResult& result);
// Likewise the 50th and 99th percentile of the time to first token.
Spread FirstTokenRatio(const BatchingResult& result, double GenerateFigures::*percentile);

nlohmann::json GenerateJson(const GenerateResult& result);
std::string GenerateTables(const GenerateResult& result);  // Markdown

}  // namespace sluice::loadtest
