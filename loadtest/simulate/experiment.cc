#include "loadtest/simulate/experiment.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/review/adaptive.h"
#include "engine/review/ladder_benchmark.h"
#include "engine/review/virtual_run.h"
#include "engine/schedule/scheduler.h"
#include "engine/schedule/step_budget.h"
#include "loadtest/simulate/fixed_sets.h"
#include "loadtest/simulate/oracle.h"

namespace sluice::loadtest {
namespace {

// The graphs of a fixed set.
struct Graphs {
  int64_t count;
  int32_t largest;  // in tokens
};

class Experiment {
 public:
  // `ladder` comes from the options, or from a fixed set with `graphs` graphs.
  Experiment(const ExperimentOptions& options, const LadderLimits& limits, Ladder ladder,
             std::optional<Graphs> graphs)
      : options_(options),
        limits_(limits),
        graphs_(graphs),
        scheduler_(options.batch, std::chrono::microseconds(options.ladder.review.half_life_us),
                   std::make_shared<const Ladder>(std::move(ladder)),
                   CostModel(options.assumed_rows), nullptr) {
    WarmUp();
  }

  void Settle(std::span<const Arrival> arrivals) {
    VirtualRunOptions run = RunOptions();
    if (Adaptive()) run.on_timer = Reviews();
    RunVirtually(arrivals, run, &scheduler_);
    if (Adaptive()) Review(&scheduler_, /*force=*/true);
  }

  // Replaces the ladder by the best one that a search finds for these arrivals.
  void Improve(std::span<const Arrival> arrivals) {
    Adopt(std::make_shared<const Ladder>(SearchLadder(
        *scheduler_.ladder(), arrivals, options_.batch, LawOf(scheduler_.costs()), limits_)));
  }

  Measurement Measure(std::span<const Arrival> arrivals, bool review) {
    VirtualRunOptions run = RunOptions();
    if (Adaptive() && review) run.on_timer = Reviews();
    std::vector<double> latencies;
    int64_t tokens_in_time = 0;
    run.on_done = [&](size_t i, MonoTime end, bool ran) {
      if (!ran) return;
      latencies.push_back(Seconds(end - arrivals[i].at));
      if (end > arrivals[i].deadline) {
        ++measurement_.late;
      } else {
        tokens_in_time += arrivals[i].tokens;
      }
    };
    int64_t in_plans = 0;
    run.on_batch = [&](const VirtualBatch& batch) {
      in_plans += !graphs_.has_value() || batch.decision.bucket.tokens <= graphs_->largest ? 1 : 0;
    };
    const VirtualResult result = RunVirtually(arrivals, run, &scheduler_);
    if (result.batches > 0) {
      measurement_.planned_share =
          static_cast<double>(in_plans) / static_cast<double>(result.batches);
    }
    Fill(result, tokens_in_time, std::move(latencies));
    return std::exchange(measurement_, {});
  }

 private:
  bool Adaptive() const { return options_.ladder.strategy == StrategyKind::kAdaptive; }

  VirtualRunOptions RunOptions() const {
    return {
        .cost = [this](const StepShape& step) { return options_.costs(step); },
        .rows = options_.costs.rows,
        .chunk_tokens = RunLimitsOf(options_.batch, scheduler_.ladder()->largest()).chunk_tokens};
  }

  // Times every plan, as the daemon's warm-up does.
  void WarmUp() {
    for (const Bucket& bucket : scheduler_.ladder()->buckets()) Capture(bucket);
    if (graphs_.has_value()) measurement_.captures = graphs_->count;
  }

  void Capture(const Bucket& bucket) {
    ++measurement_.captures;
    const StepShape full{.bucket = bucket,
                         .computed_tokens = bucket.tokens,
                         .distinct_positions = std::min(bucket.tokens, options_.max_positions),
                         .sampled_rows = 1};
    for (int i = 0; i < 3; ++i) scheduler_.Observe(full, options_.costs(full));
  }

  std::function<MonoTime(MonoTime, Scheduler*)> Reviews() {
    return [this, begun = false](MonoTime now, Scheduler* scheduler) mutable {
      if (std::exchange(begun, true)) Review(scheduler, /*force=*/false);
      return now + options_.review_interval;
    };
  }

  void Review(Scheduler* scheduler, bool force) {
    const PlanCost plan_cost{
        .capture_seconds = [this](const Bucket&) { return options_.capture_seconds; },
        .memory_bytes = [](const Bucket&) { return int64_t{0}; }};
    LadderReview review =
        ReviewLadder(options_.ladder, options_.batch, limits_, *scheduler->ladder(),
                     scheduler->costs(), scheduler->traffic(), plan_cost, force);
    if (review.ladder != nullptr) Adopt(std::move(review.ladder));
  }

  void Adopt(std::shared_ptr<const Ladder> ladder) {
    ++measurement_.changes;
    const std::shared_ptr<const Ladder> before = scheduler_.ladder();
    scheduler_.SetLadder(ladder);
    for (const Bucket& bucket : ladder->buckets()) {
      if (!std::ranges::binary_search(before->buckets(), bucket)) Capture(bucket);
    }
  }

  void Fill(const VirtualResult& result, int64_t tokens_in_time, std::vector<double> latencies) {
    std::sort(latencies.begin(), latencies.end());
    Measurement& m = measurement_;
    m.bucket_fill = result.bucket_fill();
    if (result.computed_tokens > 0) {
      m.executed_efficiency =
          static_cast<double>(result.useful_tokens) / static_cast<double>(result.computed_tokens);
    }
    if (result.span_seconds > 0) {
      m.tokens_per_second = static_cast<double>(tokens_in_time) / result.span_seconds;
      m.busy_share = result.busy_seconds / result.span_seconds;
    }
    if (result.sequences > 0) {
      m.mean_seconds = result.latency_sum_seconds / static_cast<double>(result.sequences);
    }
    m.p50_seconds = Quantile(latencies, 0.5);
    m.p99_seconds = Quantile(latencies, 0.99);
    m.sequences = result.sequences;
    m.expired = result.expired;
    m.batches = result.batches;
    const std::span<const Bucket> buckets = scheduler_.ladder()->buckets();
    m.plans = graphs_.has_value() ? graphs_->count : std::ssize(buckets);
    if (graphs_.has_value()) return;
    for (const Bucket& bucket : buckets) m.ladder.push_back(bucket.tokens);
  }

  const ExperimentOptions& options_;
  const LadderLimits limits_;
  const std::optional<Graphs> graphs_;
  Scheduler scheduler_;
  Measurement measurement_;
};

LadderLimits LimitsOf(const ExperimentOptions& options) {
  return {.max_tokens = options.batch.max_batch_tokens,
          .max_sequences = options.batch.max_batch_sequences,
          .rows = options.assumed_rows,
          .max_positions = options.max_positions};
}

absl::StatusOr<std::unique_ptr<Experiment>> MakeExperiment(const ExperimentOptions& options) {
  const LadderLimits limits = LimitsOf(options);
  if (!options.fixed_set.empty()) {
    std::optional<FixedSet> set = FixedSetOf(options.fixed_set, limits);
    if (!set.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("unknown fixed set ", options.fixed_set));
    }
    return std::make_unique<Experiment>(options, limits, std::move(set->ladder),
                                        Graphs{set->graphs, set->largest_graph});
  }
  SLUICE_ASSIGN_OR_RETURN(Ladder ladder, BuildLadder(options.ladder, options.batch.policy, limits));
  return std::make_unique<Experiment>(options, limits, std::move(ladder), std::nullopt);
}

}  // namespace

double StepCosts::operator()(const StepShape& step) const {
  if (measured.has_value()) return (*measured)(step);
  return base_seconds + seconds_per_bucket_token * rows.OfBucketLayers(step.bucket.tokens) +
         seconds_per_computed_token * step.computed_tokens +
         seconds_per_adapter * step.distinct_adapters;
}

double ExperimentOptions::FullTokensPerSecond() const {
  const int32_t tokens = batch.max_batch_tokens;
  const auto full = [&](int32_t count) {
    return costs({.bucket = {.tokens = count, .sequences = count}, .computed_tokens = count});
  };
  return tokens / (full(tokens) - full(0));
}

double Quantile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const auto index = static_cast<size_t>(share * static_cast<double>(sorted.size()));
  return sorted[std::min(index, sorted.size() - 1)];
}

absl::StatusOr<Measurement> RunExperiment(const ExperimentOptions& options,
                                          std::span<const Arrival> first,
                                          std::span<const Arrival> second) {
  using Foresight = ExperimentOptions::Foresight;
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Experiment> experiment, MakeExperiment(options));
  experiment->Settle(options.foresight == Foresight::kNone ? first : second);
  if (options.foresight == Foresight::kSearched) experiment->Improve(second);
  return experiment->Measure(second, options.review_second);
}

absl::StatusOr<std::vector<Measurement>> RunPhases(const ExperimentOptions& options,
                                                   std::span<const std::vector<Arrival>> phases) {
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<Experiment> experiment, MakeExperiment(options));
  std::vector<Measurement> measurements;
  for (const std::vector<Arrival>& phase : phases) {
    measurements.push_back(experiment->Measure(phase, /*review=*/true));
  }
  return measurements;
}

}  // namespace sluice::loadtest
