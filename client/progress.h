// Describes the progress and the outcome of a run of many requests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace sluice::client {

struct RunCounts {
  int64_t requests = 0;  // finished requests
  int64_t errors = 0;    // failed requests
  int64_t tokens = 0;    // generated tokens
};

// Returns one line without a line break. It has a bar if `share`, the part of the input that was
// read, is known.
std::string ProgressLine(const RunCounts& counts, std::optional<double> share,
                         absl::Duration elapsed);

// Returns the count, errors, tokens per second, and the latency percentiles of answered requests.
std::string SummaryText(const RunCounts& counts, std::vector<double> latency_seconds,
                        absl::Duration elapsed);

}  // namespace sluice::client
