// Makes the requests of `sluice-bench buckets`: the lengths of a trace, in its order, for a model
// with fewer positions than the traced one.
#pragma once

#include <cstdint>
#include <vector>

#include "loadtest/bench/daemon/workload.h"

namespace sluice::loadtest {

// Returns the trace with inputs cut to `cap` tokens and then multiplied by positions / cap, rounded
// up: at least 1, at most `positions`. Requires 1 <= positions <= cap.
std::vector<TraceRow> ScaleTrace(std::vector<TraceRow> trace, int32_t cap, int32_t positions);

// Makes phases from a scaled trace. Each phase continues where the previous phase stopped.
// Every request scores its prompt and generates one token.
class BucketsWorkload : public Workload {
 public:
  BucketsWorkload(std::vector<TraceRow> trace, int32_t positions, int32_t vocab, uint64_t seed);

  int32_t DistinctLengths() const;  // in the whole trace
  double MeanLength() const;

 private:
  std::vector<TraceRow> Lengths(load::WorkloadOptions* options) override;
  void OnPhase(const std::vector<load::Arrival>& arrivals,
               const std::vector<uint32_t>& payloads) override;

  std::vector<TraceRow> trace_;
};

}  // namespace sluice::loadtest
