#include "engine/review/ladder_trial.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include "engine/review/virtual_run.h"
#include "engine/schedule/room.h"

namespace sluice {

CostModel LawOf(const CostModel& costs) {
  CostModel::State law;
  std::ranges::copy(costs.state().law, law.law);
  CostModel model;
  model.Restore(law);
  return model;
}

LadderTrial TryLadder(const Ladder& ladder, std::span<const Arrival> arrivals,
                      const BatchOptions& options, const CostModel& law) {
  std::vector<Arrival> patient(arrivals.begin(), arrivals.end());
  for (Arrival& arrival : patient) arrival.deadline = MonoTime::max();
  std::ranges::stable_sort(patient, {}, &Arrival::at);

  std::map<int32_t, double> totals;
  VirtualRunOptions run;
  run.cost = [&](const StepShape& step) { return law.Estimate(step); };
  run.recompute = options.policy != PolicyKind::kCutAndFill;
  run.chunk_tokens = RunLimitsOf(options, ladder.largest()).chunk_tokens;
  run.on_batch = [&](const VirtualBatch& batch) { ++totals[batch.decision.size.tokens]; };
  Scheduler scheduler(options, std::chrono::hours(1), std::make_shared<const Ladder>(ladder), law,
                      /*observer=*/nullptr);
  const VirtualResult result = RunVirtually(patient, run, &scheduler);

  LadderTrial trial;
  for (const auto& [tokens, count] : totals) trial.totals.push_back({tokens, count});
  trial.device_seconds = result.busy_seconds;
  trial.mean_latency_seconds =
      result.latency_sum_seconds / static_cast<double>(std::max<int64_t>(result.sequences, 1));
  trial.efficiency = result.padding_efficiency();
  return trial;
}

}  // namespace sluice
