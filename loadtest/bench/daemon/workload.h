// Makes the phases of a benchmark: requests drawn beforehand, sent in a closed or in an open loop.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "loadtest/bench/daemon/traffic.h"
#include "loadtest/load/arrivals.h"
#include "loadtest/load/payload.h"
#include "loadtest/trace/trace_file.h"

namespace sluice::loadtest {

// Requests of traced lengths for a model of `positions`. Each phase has a seed of its own; one seed
// repeats all phases.
class Workload {
 public:
  virtual ~Workload() = default;

  absl::StatusOr<Traffic> Closed(int outstanding, load::nanoseconds duration);
  absl::StatusOr<Traffic> Open(double rate, load::nanoseconds duration) {
    return Make(rate, duration);
  }

  const load::PayloadPool& pool() const { return pool_; }

 protected:
  // `requests` says model, vocabulary, outputs, parameters and seed.
  Workload(int32_t positions, const load::PayloadOptions& requests)
      : positions_(positions), seed_(requests.seed), pool_(requests) {}

  // The lengths of a phase, whose other options it may change.
  virtual std::vector<load::TraceRow> Lengths(load::WorkloadOptions* options) = 0;
  // The requests of a phase, and the payload of each.
  virtual void OnPhase(const std::vector<load::Arrival>& arrivals,
                       const std::vector<uint32_t>& payloads) = 0;

 private:
  absl::StatusOr<Traffic> Make(double rate, load::nanoseconds duration);

  const int32_t positions_;
  uint64_t seed_;
  load::PayloadPool pool_;
};

}  // namespace sluice::loadtest
