#include "loadtest/bench/daemon/workload.h"

#include <chrono>
#include <utility>

namespace sluice::loadtest {

absl::StatusOr<Traffic> Workload::Closed(int outstanding, load::nanoseconds duration) {
  // Only the lengths are of interest; the loop begins again when it has sent them all.
  absl::StatusOr<Traffic> traffic = Make(4000, std::chrono::seconds(1));
  if (!traffic.ok()) return traffic.status();
  traffic->outstanding = outstanding;
  traffic->rate = 0;
  traffic->duration = duration;
  return traffic;
}

absl::StatusOr<Traffic> Workload::Make(double rate, load::nanoseconds duration) {
  load::WorkloadOptions options;
  options.lengths = "trace";
  options.cap = positions_ + 1;
  options.seed = seed_++;
  const std::vector<load::TraceRow> lengths = Lengths(&options);
  absl::StatusOr<std::vector<load::Arrival>> arrivals =
      load::MakeSchedule(options, lengths, rate, duration);
  if (!arrivals.ok()) return arrivals.status();
  if (arrivals->empty()) return absl::InvalidArgumentError("no request arrives in a phase");
  absl::StatusOr<std::vector<uint32_t>> payloads = pool_.Assign(*arrivals);
  if (!payloads.ok()) return payloads.status();
  OnPhase(*arrivals, *payloads);
  return Traffic{0, rate, duration, *std::move(arrivals), *std::move(payloads)};
}

}  // namespace sluice::loadtest
