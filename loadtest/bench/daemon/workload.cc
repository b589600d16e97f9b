#include "loadtest/bench/daemon/workload.h"

#include <chrono>
#include <utility>

#include "base/status_macros.h"

namespace sluice::loadtest {

absl::StatusOr<Traffic> Workload::Closed(int outstanding, load::nanoseconds duration) {
  // Only the lengths matter; the loop starts again after it has sent all requests.
  SLUICE_ASSIGN_OR_RETURN(Traffic traffic, Make(4000, std::chrono::seconds(1)));
  traffic.outstanding = outstanding;
  traffic.rate = 0;
  traffic.duration = duration;
  return traffic;
}

absl::StatusOr<Traffic> Workload::Make(double rate, load::nanoseconds duration) {
  load::WorkloadOptions options;
  options.lengths = "trace";
  options.cap = positions_ + 1;
  options.seed = seed_++;
  const std::vector<TraceRow> lengths = Lengths(&options);
  SLUICE_ASSIGN_OR_RETURN(std::vector<load::Arrival> arrivals,
                          load::MakeSchedule(options, lengths, rate, duration));
  if (arrivals.empty()) return absl::InvalidArgumentError("no request arrives in a phase");
  SLUICE_ASSIGN_OR_RETURN(std::vector<uint32_t> payloads, pool_.Assign(arrivals));
  OnPhase(arrivals, payloads);
  return Traffic{0, rate, duration, std::move(arrivals), std::move(payloads)};
}

}  // namespace sluice::loadtest
