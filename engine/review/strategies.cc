#include "engine/review/strategies.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "engine/option_specs.h"
#include "engine/review/ladder_benchmark.h"

namespace sluice {
namespace {

// The apparent gain by chance of a fit to n arrivals is below this constant divided by sqrt(n); see
// ReviewLadder.
constexpr double kChance = 0.5;
// The number of standard errors by which a gain may differ on other arrivals. Both the measured and
// the other arrivals have an error, and the standard error is itself estimated from ten parts.
constexpr double kStandardErrors = 4;

struct Arm {
  std::string name;
  LadderChoice choice;
};

std::string Text(auto value) { return absl::StrCat(value); }

std::vector<Arm> ArmsOf(const StrategyContest& contest) {
  const LadderOptions& ladder = contest.ladder;
  const int32_t largest =
      IsPadded(contest.batch.policy) ? contest.limits.max_positions : contest.limits.max_tokens;
  std::vector<Arm> arms = {
      {"one bucket", {{"strategy", "fixed"}, {"fixed_tokens", Text(largest)}}},
      {"adaptive", {{"strategy", "adaptive"}}},
      {absl::StrFormat("geometric %.4g", ladder.ratio), {{"strategy", "geometric"}}},
      {"memory_optimal", {{"strategy", "memory_optimal"}}},
      {"hardware_aware", {{"strategy", "hardware_aware"}}}};
  if (ladder.ratio != 2) {
    arms.push_back({"geometric 2", {{"strategy", "geometric"}, {"ratio", "2"}}});
  }
  const int32_t more = 2 * contest.limits.MaxBuckets(ladder);
  if (OptionSpecOf<LadderOptions>("max_buckets").integer->Contains(more)) {
    arms.push_back({absl::StrCat("adaptive, ", more, " buckets"),
                    {{"strategy", "adaptive"}, {"max_buckets", Text(more)}}});
  }
  if (ladder.min_tokens > 1) {
    arms.push_back({"adaptive, from 1 token", {{"strategy", "adaptive"}, {"min_tokens", "1"}}});
  }
  return arms;
}

bool IsFree(const StrategyContest& contest) {
  return !LadderMatters(contest.limits.rows, contest.batch.policy);
}

// Returns the share of the device time that computed rows without a useful token.
double WastedShare(const LadderBenchmark& run, const CostModel& law, PolicyKind policy) {
  if (run.device_seconds <= 0) return 0;
  const double wasted =
      EmptyRowSeconds(law.state(), IsPadded(policy), run.useful_tokens, run.computed_tokens);
  return std::min(wasted / run.device_seconds, 1.0);
}

class Contest {
 public:
  Contest(const StrategyContest& contest, std::span<const Arrival> arrivals, const Ladder* present)
      : contest_(contest),
        // If the ladder is free, no ladders are compared, and the corrections belong to the tokens.
        costs_(IsFree(contest) ? contest.costs : LawOf(contest.costs)),
        traffic_(std::chrono::hours(1)),
        measured_(arrivals.subspan(arrivals.size() / 2)),
        present_(present) {
    for (const Arrival& arrival : arrivals.first(arrivals.size() / 2)) traffic_.OnArrival(arrival);
  }

  absl::StatusOr<StrategyTrial> Try(const Arm& arm) {
    SLUICE_ASSIGN_OR_RETURN(const LadderOptions options, Apply(arm.choice, contest_.ladder));
    SLUICE_ASSIGN_OR_RETURN(Ladder ladder,
                            BuildLadder(options, contest_.batch.policy, contest_.limits));
    if (options.strategy == StrategyKind::kAdaptive || options.memory_limit_bytes > 0) {
      SLUICE_ASSIGN_OR_RETURN(const LadderReview review,
                              AdoptLadder(options, contest_.batch, contest_.limits, ladder, costs_,
                                          traffic_, contest_.plan_cost));
      if (review.ladder != nullptr) ladder = *review.ladder;
    }
    return Measure(arm, ladder);
  }

  StrategyTrial Measure(const Arm& arm, const Ladder& ladder) {
    LadderBenchmark run = BenchmarkLadder(ladder, measured_, contest_.batch, costs_);
    StrategyTrial trial{.name = arm.name,
                        .choice = arm.choice,
                        .buckets = {ladder.buckets().begin(), ladder.buckets().end()},
                        .bucket_fill = run.bucket_fill,
                        .device_seconds = run.device_seconds,
                        .wasted_share = WastedShare(run, costs_, contest_.batch.policy),
                        .mean_latency_seconds = run.mean_latency_seconds,
                        .p50_latency_seconds = run.p50_latency_seconds,
                        .p99_latency_seconds = run.p99_latency_seconds,
                        .batches = run.batches};
    for (const Bucket& bucket : ladder.buckets()) {
      trial.plan_bytes += contest_.plan_cost.memory_bytes(bucket);
      if (present_ != nullptr && present_->Contains(bucket)) continue;
      ++trial.captures;
      trial.capture_seconds += contest_.plan_cost.capture_seconds(bucket);
    }
    runs_.push_back(std::move(run));
    return trial;
  }

  // Returns the standard error of a trial's gain over the first trial, from the gains of the parts.
  double StandardError(size_t trial) const {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < LadderBenchmark::kParts; ++i) {
      const LadderBenchmark::Tenth &part = runs_[trial].parts[i], &first = runs_.front().parts[i];
      const double before = first.device_seconds * first.latency_seconds;
      const double gain =
          before > 0 ? 1 - std::sqrt(part.device_seconds * part.latency_seconds / before) : 0;
      sum += gain;
      squares += gain * gain;
    }
    constexpr double kCount = LadderBenchmark::kParts;
    const double variance = std::max(squares - sum * sum / kCount, 0.0) / (kCount - 1);
    return std::sqrt(variance / kCount);
  }

 private:
  const StrategyContest& contest_;
  const CostModel costs_;
  Traffic traffic_;
  const std::span<const Arrival> measured_;
  const Ladder* const present_;
  std::vector<LadderBenchmark> runs_;  // of the trials
};

double CostOf(const StrategyTrial& trial) {
  return std::sqrt(trial.device_seconds * trial.mean_latency_seconds);
}

}  // namespace

std::string BestTrial(const StrategyTrials& trials) {
  double best = 0;
  for (const StrategyTrial& trial : trials.trials) best = std::max(best, trial.gain);
  if (best <= trials.margin) return trials.trials.front().name;
  const auto rank = [](const StrategyTrial& trial) {
    return std::pair(trial.plan_bytes, -trial.gain);
  };
  const StrategyTrial* taken = nullptr;
  for (const StrategyTrial& trial : trials.trials) {
    if (trial.gain < best - trials.margin) continue;
    if (taken == nullptr || rank(trial) < rank(*taken)) taken = &trial;
  }
  return taken->name;
}

absl::StatusOr<StrategyTrials> TryStrategies(const StrategyContest& contest,
                                             std::span<const Arrival> arrivals,
                                             const Ladder* present) {
  if (contest.batch.policy == PolicyKind::kStaticPadded) {
    return absl::FailedPreconditionError("the ladder of static_padded has one column and is fixed");
  }
  if (std::ssize(arrivals) < kMinArrivals) {
    return absl::FailedPreconditionError(
        absl::StrCat("only ", arrivals.size(),
                     " sequences arrived; trying strategies needs at least ", kMinArrivals));
  }
  const Bucket largest{.tokens = contest.limits.max_tokens,
                       .sequences = contest.limits.max_sequences};
  if (!IsMeasured(contest.costs, largest)) {
    return absl::FailedPreconditionError(
        "no step has been measured yet; retry after some requests");
  }
  Contest field(contest, arrivals, present);
  StrategyTrials result;
  result.arrivals = std::ssize(arrivals) - std::ssize(arrivals) / 2;
  result.margin = kChance / std::sqrt(static_cast<double>(result.arrivals));
  if (present != nullptr) result.trials.push_back(field.Measure({"present", {}}, *present));
  result.ladder_is_free = IsFree(contest);
  for (const Arm& arm : ArmsOf(contest)) {
    if (result.ladder_is_free && !result.trials.empty()) break;
    SLUICE_ASSIGN_OR_RETURN(StrategyTrial trial, field.Try(arm));
    result.trials.push_back(std::move(trial));
  }
  const double first = CostOf(result.trials.front());
  for (StrategyTrial& trial : result.trials) trial.gain = 1 - CostOf(trial) / first;
  const auto most = std::ranges::max_element(result.trials, {}, &StrategyTrial::gain);
  result.margin =
      std::max(result.margin, kStandardErrors * field.StandardError(most - result.trials.begin()));
  result.best = BestTrial(result);
  return result;
}

}  // namespace sluice
