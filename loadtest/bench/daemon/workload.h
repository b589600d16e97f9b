// Makes the phases of a benchmark: requests that are drawn before the phase and sent in a closed or
// in an open loop.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/trace_file.h"
#include "loadtest/bench/daemon/traffic.h"
#include "loadtest/load/arrivals.h"
#include "loadtest/load/payload.h"

namespace sluice::loadtest {

// Draws requests with traced lengths for a model with `positions`. Each phase has its own seed,
// which follows from the first seed.
class Workload {
 public:
  virtual ~Workload() = default;

  absl::StatusOr<Traffic> Closed(int outstanding, load::nanoseconds duration);
  absl::StatusOr<Traffic> Open(double rate, load::nanoseconds duration) {
    return Make(rate, duration);
  }

  const load::PayloadPool& pool() const { return pool_; }

 protected:
  // `requests` sets the model, vocabulary, outputs, parameters and first seed.
  Workload(int32_t positions, const load::PayloadOptions& requests)
      : positions_(positions), seed_(requests.seed), pool_(requests) {}

  // Returns the lengths of a phase. May change other options of the phase.
  virtual std::vector<TraceRow> Lengths(load::WorkloadOptions* options) = 0;
  // Called with the requests of a phase and the payload index of each request.
  virtual void OnPhase(const std::vector<load::Arrival>& arrivals,
                       const std::vector<uint32_t>& payloads) = 0;

 private:
  absl::StatusOr<Traffic> Make(double rate, load::nanoseconds duration);

  const int32_t positions_;
  uint64_t seed_;
  load::PayloadPool pool_;
};

}  // namespace sluice::loadtest
