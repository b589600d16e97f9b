#include "loadtest/load/verdict.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace sluice::load {
namespace {

double Ms(nanoseconds duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

// Returns the smallest valid number of calls: a percentile needs some calls above it.
int64_t CallsNeeded(const VerdictOptions& limits, const Objective& objective) {
  const double beyond = 1 - objective.percentile / 100;
  if (beyond <= 0) return limits.min_calls;
  return std::max(limits.min_calls, static_cast<int64_t>(std::llround(10 / beyond)));
}

}  // namespace

std::vector<std::string> ReasonsAgainst(const VerdictOptions& limits, const Objective& objective,
                                        nanoseconds measured, const PhaseStats& stats,
                                        const CpuUse& cpu,
                                        const std::optional<Reconciliation>& reconciled) {
  std::vector<std::string> reasons;
  if (measured < limits.min_duration) {
    reasons.push_back(absl::StrFormat("measured for %.1f s, under %.1f s", Ms(measured) / 1e3,
                                      Ms(limits.min_duration) / 1e3));
  }
  if (const int64_t needed = CallsNeeded(limits, objective); stats.calls < needed) {
    reasons.push_back(absl::StrFormat("%d calls, under %d", stats.calls, needed));
  }
  const double allowed_ms = limits.max_lateness_share * Ms(objective.latency);
  if (Ms(stats.lateness.p99) > allowed_ms) {
    reasons.push_back(
        absl::StrFormat("the client sent late: 99th percentile %.3f ms, over %.3f ms (%g %% of the "
                        "objective). Run it on processors that the server does not use, or allow "
                        "more by --max-lateness",
                        Ms(stats.lateness.p99), allowed_ms, 100 * limits.max_lateness_share));
  }
  if (cpu.busiest_thread > limits.max_thread_share) {
    reasons.push_back(absl::StrFormat("a client thread used %.0f %% of a core, over %.0f %%",
                                      100 * cpu.busiest_thread, 100 * limits.max_thread_share));
  }
  if (const int64_t held = stats.outcomes[static_cast<size_t>(Outcome::kNotSent)]; held > 0) {
    reasons.push_back(absl::StrFormat("%d calls were not sent: too many in flight", held));
  }
  if (stats.wrong > 0) {
    reasons.push_back(absl::StrFormat("%d answers differ from earlier answers", stats.wrong));
  }
  if (reconciled.has_value() && !reconciled->Agrees()) {
    reasons.push_back(absl::StrFormat("the client had %d good answers, the server counts %d",
                                      reconciled->client_ok, reconciled->server_ok));
  }
  return reasons;
}

}  // namespace sluice::load
