// The requests of `sluice-bench buckets`: the lengths of a trace, in its order, for a model of fewer
// positions than the traced one had.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "loadtest/load/payload.h"
#include "loadtest/trace/trace_file.h"
#include "loadtest/traffic.h"

namespace sluice::loadtest {

// Inputs cut to `cap` tokens and shrunk by positions / cap, rounded up: at least 1, at most
// `positions`. Requires 1 <= positions <= cap.
std::vector<load::TraceRow> ScaleTrace(std::vector<load::TraceRow> trace, int32_t cap,
                                       int32_t positions);

// Makes phases from a scaled trace; each takes the lengths up where the one before left off. Every
// request scores its prompt and generates one token.
class BucketsWorkload {
 public:
  BucketsWorkload(std::vector<load::TraceRow> trace, int32_t positions, int32_t vocab,
                  uint64_t seed);

  absl::StatusOr<Traffic> Closed(int outstanding, load::nanoseconds duration);
  absl::StatusOr<Traffic> Open(double rate, load::nanoseconds duration);

  const load::PayloadPool& pool() const { return pool_; }
  int32_t DistinctLengths() const;  // of the whole trace
  double MeanLength() const;

 private:
  absl::StatusOr<Traffic> Make(double rate, load::nanoseconds duration);

  std::vector<load::TraceRow> trace_;
  const int32_t positions_;
  uint64_t seed_;
  load::PayloadPool pool_;
};

}  // namespace sluice::loadtest
