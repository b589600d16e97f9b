// Decides whether a phase's figures are trustworthy.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "loadtest/load/cpu_meter.h"
#include "loadtest/load/daemon_metrics.h"
#include "loadtest/load/stats.h"

namespace sluice::load {

// Figures beyond these limits are not trusted.
struct VerdictOptions {
  nanoseconds min_duration = std::chrono::seconds(10);  // without the warm-up
  int64_t min_calls = 1000;
  double max_lateness_share =
      0.01;                       // of the objective: the client's lateness at the 99th percentile
  double max_thread_share = 0.7;  // of one core: the client's busiest thread
};

// Returns the reasons not to trust the figures, each a sentence with the figure and the limit. The
// phase is VALID if there are none. A slow, failing or overloaded server is a valid result. Reasons
// are a client that could not keep up, answers that differ, and counts that do not add up.
// `reconciled` is empty if no metrics were read.
std::vector<std::string> ReasonsAgainst(const VerdictOptions& limits, const Objective& objective,
                                        nanoseconds measured, const PhaseStats& stats,
                                        const CpuUse& cpu,
                                        const std::optional<Reconciliation>& reconciled);

}  // namespace sluice::load
