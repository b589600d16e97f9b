// A benchmark of a ladder: the batches that the batch former would make of known arrivals.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "engine/ladder/ladder.h"
#include "engine/options.h"
#include "engine/review/fit.h"
#include "engine/schedule/cost_model.h"
#include "engine/schedule/traffic.h"

namespace sluice {

// Returns the law of `costs` without its corrections. All ladders are compared with the same law:
// corrections exist only for buckets that ran, and their noise would decide the comparison.
CostModel LawOf(const CostModel& costs);

// Returns whether steps were measured. A law may have any single term, such as the context.
bool IsMeasured(const CostModel& costs, const Bucket& bucket);

// Returns whether the choice of ladder can change the speed: the policy computes rectangles, or the
// device computes rows because of the bucket.
bool LadderMatters(const ComputedRows& rows, PolicyKind policy);
// The answer of reviews and trials if it cannot.
inline constexpr char kLadderIsFree[] =
    "this device computes only the tokens of a batch, so its buckets do not change its speed";

struct LadderBenchmark {
  // A tenth of the arrivals, in order of time. A step belongs to the part of its first sequence.
  struct Tenth {
    double device_seconds = 0, latency_seconds = 0;  // sums
  };
  static constexpr size_t kParts = 10;

  std::vector<TokenWeight> totals;  // useful tokens of the batches, ascending
  double device_seconds = 0;
  int64_t useful_tokens = 0, computed_tokens = 0;
  double mean_latency_seconds = 0, p50_latency_seconds = 0, p99_latency_seconds = 0;
  int64_t batches = 0;
  double bucket_fill = 0;  // useful tokens / bucket tokens
  std::array<Tenth, kParts> parts{};
};

// Runs a scheduler over the arrivals, at their times and without their deadlines, so that each
// ladder does the same work. The arrivals may be in any order. Steps take the time by CarriedCosts.
// Ladders are comparable only with the same law, see LawOf. Deterministic.
LadderBenchmark BenchmarkLadder(const Ladder& ladder, std::span<const Arrival> arrivals,
                                const BatchOptions& options, const CostModel& costs);

}  // namespace sluice
