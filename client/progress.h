// How far a run of many requests is, and what it came to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace sluice::client {

struct RunCounts {
  int64_t requests = 0;  // done
  int64_t errors = 0;    // of these
  int64_t tokens = 0;    // generated
};

// One line without a line break: a bar where the share of the input that was read is known.
std::string ProgressLine(const RunCounts& counts, std::optional<double> share,
                         absl::Duration elapsed);

// Count, errors, tokens per second and latency percentiles of the requests that were answered.
std::string SummaryText(const RunCounts& counts, std::vector<double> latency_seconds,
                        absl::Duration elapsed);

}  // namespace sluice::client
