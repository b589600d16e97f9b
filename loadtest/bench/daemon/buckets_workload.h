// The requests of `sluice-bench buckets`: the lengths of a trace, in its order, for a model of
// fewer positions than the traced one had.
#pragma once

#include <cstdint>
#include <vector>

#include "loadtest/bench/daemon/workload.h"

namespace sluice::loadtest {

// Inputs cut to `cap` tokens and shrunk by positions / cap, rounded up: at least 1, at most
// `positions`. Requires 1 <= positions <= cap.
std::vector<load::TraceRow> ScaleTrace(std::vector<load::TraceRow> trace, int32_t cap,
                                       int32_t positions);

// Makes phases from a scaled trace; each takes the lengths up where the one before left off. Every
// request scores its prompt and generates one token.
class BucketsWorkload : public Workload {
 public:
  BucketsWorkload(std::vector<load::TraceRow> trace, int32_t positions, int32_t vocab,
                  uint64_t seed);

  int32_t DistinctLengths() const;  // of the whole trace
  double MeanLength() const;

 private:
  std::vector<load::TraceRow> Lengths(load::WorkloadOptions* options) override;
  void OnPhase(const std::vector<load::Arrival>& arrivals,
               const std::vector<uint32_t>& payloads) override;

  std::vector<load::TraceRow> trace_;
};

}  // namespace sluice::loadtest
