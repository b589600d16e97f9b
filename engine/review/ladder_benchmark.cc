#include "engine/review/ladder_benchmark.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include "base/quantile.h"
#include "engine/review/virtual_run.h"
#include "engine/schedule/carried_costs.h"
#include "engine/schedule/step_budget.h"

namespace sluice {

CostModel LawOf(const CostModel& costs) {
  const CostState all = costs.state();
  CostState law{.rows = all.rows};
  std::ranges::copy(all.law, law.law);
  CostModel model;
  model.Restore(law);
  return model;
}

bool LadderMatters(const ComputedRows& rows, PolicyKind policy) {
  return IsPadded(policy) || !rows.batch_only();
}

bool IsMeasured(const CostModel& costs, const Bucket& bucket) {
  return costs.Estimate({.bucket = bucket,
                         .computed_tokens = bucket.tokens,
                         .context_tokens = bucket.tokens,
                         .distinct_positions = 1,
                         .sampled_rows = 1}) > 0;
}

LadderBenchmark BenchmarkLadder(const Ladder& ladder, std::span<const Arrival> arrivals,
                                const BatchOptions& options, const CostModel& costs) {
  std::vector<Arrival> patient(arrivals.begin(), arrivals.end());
  for (Arrival& arrival : patient) arrival.deadline = MonoTime::max();
  std::ranges::stable_sort(patient, {}, &Arrival::at);

  std::map<int32_t, double> totals;
  VirtualRunOptions run;
  run.cost = CarriedCosts(costs);
  run.rows = costs.rows();
  run.recompute = options.policy != PolicyKind::kPacked;
  run.chunk_tokens = RunLimitsOf(options, ladder.largest()).chunk_tokens;
  LadderBenchmark benchmark;
  const auto part_of = [&](size_t arrival) -> LadderBenchmark::Tenth& {
    return benchmark.parts[arrival * LadderBenchmark::kParts / patient.size()];
  };
  std::vector<double> latencies;
  latencies.reserve(patient.size());
  run.on_done = [&](size_t i, MonoTime end, bool) {
    latencies.push_back(Seconds(end - patient[i].at));
    part_of(i).latency_seconds += latencies.back();
  };
  run.on_batch = [&](const VirtualBatch& batch) {
    ++totals[batch.decision.size.tokens];
    // Tickets are the indices of the arrivals.
    part_of(batch.sequences.front()->ticket).device_seconds += Seconds(batch.end - batch.start);
  };
  Scheduler scheduler(options, std::chrono::hours(1), std::make_shared<const Ladder>(ladder), costs,
                      /*observer=*/nullptr);
  const VirtualResult result = RunVirtually(patient, run, &scheduler);

  for (const auto& [tokens, count] : totals) benchmark.totals.push_back({tokens, count});
  benchmark.device_seconds = result.busy_seconds;
  benchmark.useful_tokens = result.useful_tokens;
  benchmark.computed_tokens = result.computed_tokens;
  benchmark.mean_latency_seconds =
      result.latency_sum_seconds / static_cast<double>(std::max<int64_t>(result.sequences, 1));
  std::ranges::sort(latencies);
  benchmark.p50_latency_seconds = QuantileOfSorted<double>(latencies, 0.5);
  benchmark.p99_latency_seconds = QuantileOfSorted<double>(latencies, 0.99);
  benchmark.batches = result.batches;
  benchmark.bucket_fill = result.bucket_fill();
  return benchmark;
}

}  // namespace sluice
