#include "loadtest/size/sizing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/review/adaptive.h"
#include "engine/review/ladder_benchmark.h"
#include "engine/review/virtual_run.h"
#include "engine/schedule/scheduler.h"
#include "engine/schedule/step_budget.h"

namespace sluice::loadtest {
namespace {

// Requires arrivals that ascend in time, at least one.
RecordedLoad LoadOf(std::span<const Arrival> arrivals) {
  RecordedLoad load;
  load.seconds = Seconds(arrivals.back().at - arrivals.front().at);
  int64_t tokens = 0;
  size_t first = 0;  // of the second that ends with the current arrival
  for (size_t i = 0; i < arrivals.size(); ++i) {
    tokens += arrivals[i].tokens;
    while (arrivals[i].at - arrivals[first].at >= std::chrono::seconds(1)) ++first;
    load.busiest_second = std::max(load.busiest_second, static_cast<double>(i - first + 1));
  }
  if (load.seconds == 0) return load;
  load.sequences_per_second = static_cast<double>(arrivals.size()) / load.seconds;
  load.tokens_per_second = static_cast<double>(tokens) / load.seconds;
  return load;
}

// The largest ratio between the smallest growth that is too much and the largest that is not.
constexpr double kPrecision = 1.02;
constexpr double kMostGrowth = 1e6;

// Returns the arrivals of each replica, `growth` times faster.
std::vector<std::vector<Arrival>> SplitArrivals(std::span<const Arrival> arrivals, double growth,
                                                int replicas, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<size_t> replica(0, replicas - 1);
  std::vector<std::vector<Arrival>> split(replicas);
  for (const Arrival& arrival : arrivals) {
    Arrival& sooner = split[replica(random)].emplace_back(arrival);
    const double offset = static_cast<double>((arrival.at - arrivals.front().at).count()) / growth;
    sooner.at = MonoTime(nanoseconds(std::llround(offset)));
    if (arrival.deadline != MonoTime::max()) {
      sooner.deadline = sooner.at + (arrival.deadline - arrival.at);
    }
  }
  return split;
}

class Sizer {
 public:
  Sizer(std::span<const Arrival> arrivals, const SizingOptions& options, Ladder ladder)
      : arrivals_(arrivals),
        options_(options),
        ladder_(std::make_shared<const Ladder>(std::move(ladder))),
        chunk_tokens_(RunLimitsOf(options.batch, ladder_->largest()).chunk_tokens),
        warm_(options.costs.rows) {
    if (options.first_costs.has_value()) {
      warm_ = *options.first_costs;
      return;
    }
    for (const Bucket& bucket : ladder_->buckets()) {
      const StepShape full{.bucket = bucket, .computed_tokens = bucket.tokens};
      for (int i = 0; i < 3; ++i) warm_.Observe(full, options_.costs(full));
    }
  }

  Sizing Run() const {
    Sizing sizing{.arrivals = std::ssize(arrivals_),
                  .recorded = LoadOf(arrivals_),
                  .rows = {},
                  .share_alone = {},
                  .longest = std::ranges::max(arrivals_, {}, &Arrival::tokens).tokens,
                  .ladder = *ladder_,
                  .ladder_is_free = !LadderMatters(options_.costs.rows, options_.batch.policy)};
    sizing.lasts = sizing.recorded.seconds > options_.objective_seconds * options_.growth;
    for (int replicas = 1; replicas <= options_.max_replicas; ++replicas) {
      sizing.rows.push_back(Row(replicas, RunAll(Split(options_.growth, replicas))));
      if (sizing.rows.back().meets) {
        sizing.replicas = replicas;
        sizing.bears = MostGrowth(replicas);
        break;
      }
      if (replicas > 1) continue;
      sizing.share_alone = Row(1, RunAll({Apart()})).share_within;
      if (*sizing.share_alone < options_.share) break;
    }
    return sizing;
  }

 private:
  // Sums over all replicas.
  struct Sum {
    std::vector<double> latencies;
    int64_t within = 0, useful_tokens = 0, bucket_tokens = 0;
    double busy_seconds = 0, span_seconds = 0;
  };

  std::vector<std::vector<Arrival>> Split(double growth, int replicas) const {
    return SplitArrivals(arrivals_, growth, replicas, options_.seed);
  }

  // Runs the arrivals of each replica.
  Sum RunAll(const std::vector<std::vector<Arrival>>& parts) const {
    Sum sum;
    for (const auto& part : parts) RunOne(part, &sum);
    std::sort(sum.latencies.begin(), sum.latencies.end());
    return sum;
  }

  // Returns the arrivals, apart from each other, so that each one finds an idle replica.
  std::vector<Arrival> Apart() const {
    constexpr double kLeastGap = 1e-3, kMostGap = 1000;
    const double gap = std::clamp(10 * options_.objective_seconds, kLeastGap, kMostGap);
    std::vector<Arrival> apart(arrivals_.begin(), arrivals_.end());
    MonoTime at{};
    for (Arrival& arrival : apart) {
      if (arrival.deadline != MonoTime::max())
        arrival.deadline = at + (arrival.deadline - arrival.at);
      arrival.at = at;
      at += nanoseconds(std::llround(gap * 1e9));
    }
    return apart;
  }

  SizingRow Row(int replicas, const Sum& sum) const {
    SizingRow row{.replicas = replicas,
                  .p50_seconds = Quantile(sum.latencies, 0.5),
                  .p99_seconds = Quantile(sum.latencies, 0.99)};
    if (sum.span_seconds > 0) row.utilisation = sum.busy_seconds / replicas / sum.span_seconds;
    if (sum.bucket_tokens > 0) {
      row.bucket_fill =
          static_cast<double>(sum.useful_tokens) / static_cast<double>(sum.bucket_tokens);
    }
    row.share_within = static_cast<double>(sum.within) / static_cast<double>(arrivals_.size());
    row.meets = row.share_within >= options_.share;
    return row;
  }

  void RunOne(std::span<const Arrival> arrivals, Sum* sum) const {
    VirtualRunOptions run;
    run.cost = [this](const StepShape& step) {
      return (1 + options_.margin) * options_.costs(step);
    };
    run.host = options_.host;
    run.stretch = [this](MonoTime now, nanoseconds work) {
      return options_.pace.Stretch(now - MonoTime(), work);
    };
    run.recompute = options_.recompute;
    run.chunk_tokens = chunk_tokens_;
    run.on_done = [&](size_t i, MonoTime end, bool ran) {
      if (!ran) return;
      const double latency = Seconds(end - arrivals[i].at);
      sum->latencies.push_back(latency);
      if (latency <= options_.objective_seconds && end <= arrivals[i].deadline) ++sum->within;
      sum->span_seconds = std::max(sum->span_seconds, Seconds(end - MonoTime()));
    };
    Scheduler scheduler(options_.batch, std::chrono::hours(1), ladder_, warm_, nullptr);
    const VirtualResult result = RunVirtually(arrivals, run, &scheduler);
    sum->useful_tokens += result.useful_tokens;
    sum->bucket_tokens += result.bucket_tokens;
    sum->busy_seconds += result.busy_seconds;
  }

  // Returns whether the replicas meet the objective, and could continue to meet it: if their steps
  // take longer than the arrivals last, the queues would grow.
  bool Bears(int replicas, double growth) const {
    const Sum sum = RunAll(Split(growth, replicas));
    const double lasts = Seconds(arrivals_.back().at - arrivals_.front().at) / growth;
    return Row(replicas, sum).meets && sum.busy_seconds <= replicas * lasts;
  }

  double MostGrowth(int replicas) const {
    double borne = options_.growth;
    double unborne = borne * 2;
    while (unborne < kMostGrowth && Bears(replicas, unborne)) {
      borne = unborne;
      unborne *= 2;
    }
    while (unborne / borne > kPrecision) {
      const double middle = std::sqrt(borne * unborne);
      (Bears(replicas, middle) ? borne : unborne) = middle;
    }
    return borne;
  }

  const std::span<const Arrival> arrivals_;
  const SizingOptions& options_;
  const std::shared_ptr<const Ladder> ladder_;
  const int32_t chunk_tokens_;
  CostModel warm_;  // the costs of a replica at its start
};

absl::Status Check(std::span<const Arrival> arrivals, const SizingOptions& options) {
  if (arrivals.empty()) return absl::InvalidArgumentError("nothing arrives");
  if (!(options.growth > 0 && options.growth <= kMostGrowth)) {
    return absl::InvalidArgumentError(
        absl::StrCat("growth is ", options.growth, ", must be within (0, ", kMostGrowth, "]"));
  }
  if (options.batch.policy != PolicyKind::kPacked &&
      options.batch.policy != PolicyKind::kFifoPacked) {
    return absl::InvalidArgumentError("only packed policies can be sized; set engine.batch.policy");
  }
  for (const Arrival& arrival : arrivals) {
    const int64_t most = arrival.tokens + (options.recompute ? int64_t{arrival.steps} - 1 : 0);
    if (arrival.tokens < 1 || most > options.batch.max_batch_tokens) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a sequence of ", most, " tokens; max_batch_tokens is ", options.batch.max_batch_tokens));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Ladder> LadderFor(std::span<const Arrival> arrivals, const SizingOptions& options) {
  const LadderLimits limits{.max_tokens = options.batch.max_batch_tokens,
                            .max_sequences = options.batch.max_batch_sequences,
                            .rows = options.costs.rows};
  if (options.recorded_ladder.has_value() &&
      !LadderMatters(options.costs.rows, options.batch.policy)) {
    return *options.recorded_ladder;
  }
  absl::StatusOr<Ladder> ladder = BuildLadder(options.ladder, limits);
  if (!ladder.ok() || options.ladder.strategy != StrategyKind::kAdaptive) return ladder;
  std::vector<int32_t> lengths;
  for (const Arrival& arrival : arrivals) lengths.push_back(arrival.tokens);
  CostModel costs(options.costs.rows);
  for (const Bucket& bucket : ladder->buckets()) {
    const StepShape full{.bucket = bucket, .computed_tokens = bucket.tokens};
    costs.Observe(full, options.costs(full));
  }
  return FitLadder(lengths, options.ladder, options.batch, limits, costs);
}

}  // namespace

void SetRun(const RecordedRun& run, bool with_costs, SizingOptions* options) {
  options->from_journal = true;
  options->journal_runs = run.runs;
  options->recorded_ladder = run.ladder;
  options->recompute = run.recompute;
  options->host = run.host;
  options->pace = run.pace;
  options->batch = run.batch;
  options->batch.max_batch_tokens = run.max_tokens;
  if (!with_costs) return;
  options->costs = StepCosts::Measured(run.costs);
  options->first_costs = run.first_costs;
}

absl::StatusOr<Sizing> SizeReplicas(std::span<const Arrival> arrivals,
                                    const SizingOptions& options) {
  SLUICE_RETURN_IF_ERROR(Check(arrivals, options));
  SLUICE_ASSIGN_OR_RETURN(Ladder ladder, LadderFor(arrivals, options));
  return Sizer(arrivals, options, std::move(ladder)).Run();
}

}  // namespace sluice::loadtest
