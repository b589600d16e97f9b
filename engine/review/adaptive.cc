#include "engine/review/adaptive.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "engine/review/ladder_benchmark.h"
#include "engine/review/ladder_fitter.h"
#include "engine/schedule/step_budget.h"

namespace sluice {
namespace {

// If a ladder is at least this dense, its batch totals hardly depend on its boundaries.
constexpr double kDenseRatio = 1.05;
constexpr int32_t kDenseBuckets = 128;
constexpr int kRounds = 3;
// Arrivals older than this many half-lives are not replayed.
constexpr int kHalfLives = 4;
// At most this many steps are replayed in total, because each is replayed several times.
constexpr int64_t kMaxSteps = 4 * Traffic::kRecentArrivals;

// Boundaries fit the arrivals that they were fitted to better than future arrivals. On stationary
// traffic, the apparent gain from this was in most reviews below this constant divided by the
// square root of the number of arrivals.
constexpr double kOptimism = 0.5;
constexpr double kAssumedLoads[] = {0.5, 0.85};
constexpr uint64_t kSeed = 1;

LadderOptions GeometricOptions(const LadderOptions& options) {
  LadderOptions geometric = options;
  geometric.strategy = StrategyKind::kGeometric;
  return geometric;
}

Ladder DenseLadder(const LadderOptions& options, const LadderLimits& limits) {
  LadderOptions dense = GeometricOptions(options);
  dense.ratio = kDenseRatio;
  dense.cap_tokens = 0;
  dense.max_buckets = std::max(limits.MaxBuckets(options), kDenseBuckets);
  return *BuildLadder(dense, limits);
}

double SpanSeconds(std::span<const Arrival> arrivals) {
  if (arrivals.empty()) return 0;
  const auto [first, last] = std::ranges::minmax(arrivals, {}, &Arrival::at);
  return std::chrono::duration<double>(last.at - first.at).count();
}

struct Candidate {
  Ladder ladder;
  LadderBenchmark benchmark;
  double seconds;  // device time, including captures

  // Device time is not enough if the device is busy: the time saved by tight buckets allows smaller
  // batches that start earlier, which reduces the latency.
  double Cost() const { return std::sqrt(seconds * benchmark.mean_latency_seconds); }
};

// Searches for the ladder with the lowest cost for the recent arrivals.
class Search {
 public:
  Search(const LadderOptions& options, const BatchOptions& batch_options,
         const LadderLimits& limits, const CostModel& law, const Ladder& present,
         std::span<const Arrival> arrivals, const PlanCost& plan_cost)
      : options_(options),
        batch_options_(batch_options),
        limits_(limits),
        law_(law),
        present_(present),
        arrivals_(arrivals),
        capture_share_(std::min(
            SpanSeconds(arrivals) * 1e6 / static_cast<double>(options.review.half_life_us), 1.0)),
        plan_cost_(plan_cost),
        fitting_cost_{
            .capture_seconds = [this](const Bucket& bucket) { return CaptureSeconds(bucket); },
            .memory_bytes = plan_cost.memory_bytes},
        fitter_(options, limits, law_, fitting_cost_) {}

  Candidate Try(Ladder ladder) const {
    LadderBenchmark benchmark = BenchmarkLadder(ladder, arrivals_, batch_options_, law_);
    double seconds = benchmark.device_seconds;
    for (const Bucket& bucket : ladder.buckets()) seconds += CaptureSeconds(bucket);
    return {std::move(ladder), std::move(benchmark), seconds};
  }

  // Returns the best ladder among `start` and ladders fitted to the arrivals. All respect
  // max_buckets and the memory limit.
  Candidate Best(Candidate start) const {
    Candidate best = std::move(start);
    const auto consider = [&best](Candidate candidate) {
      if (candidate.Cost() < best.Cost()) best = std::move(candidate);
    };
    const Ladder geometric =
        *BuildLadder(GeometricOptions(options_), batch_options_.policy, limits_);
    consider(Try(Pruned(geometric, best.benchmark.totals)));
    if (present_.padded()) {
      consider(Try(Pruned(FittedColumns(), {})));
      return best;
    }
    // New boundaries change the batches that they were fitted to, so the fit is repeated.
    std::vector<std::vector<TokenWeight>> seen = {
        BenchmarkLadder(DenseLadder(options_, limits_), arrivals_, batch_options_, law_).totals};
    for (int round = 0; round < kRounds; ++round) {
      Candidate fitted = Try(fitter_.Fit(Pool(seen)));
      seen.push_back(fitted.benchmark.totals);
      consider(std::move(fitted));
    }
    return best;
  }

  // Returns the ladder without the buckets that usage or memory exclude. A padded ladder only loses
  // columns because of memory.
  Ladder Pruned(const Ladder& ladder, std::span<const TokenWeight> totals) const {
    return ladder.padded() ? fitter_.PruneColumns(ladder, Lengths())
                           : fitter_.Prune(ladder, totals);
  }

  // Returns the ladder's buckets that are dropped only because of the memory limit.
  std::vector<Bucket> Evicted(const Ladder& ladder, std::span<const TokenWeight> totals) const {
    return ladder.padded() ? CompareLadders(ladder, Pruned(ladder, totals)).removed
                           : fitter_.Evicted(ladder, totals);
  }

 private:
  // Returns the lengths of the arrivals, each limited to the width of the widest column.
  std::vector<TokenWeight> Lengths() const {
    std::map<int32_t, double> counts;
    for (const Arrival& arrival : arrivals_) {
      ++counts[std::min(arrival.tokens, limits_.max_positions)];
    }
    std::vector<TokenWeight> lengths;
    lengths.reserve(counts.size());
    for (const auto& [tokens, count] : counts) lengths.push_back({tokens, count});
    return lengths;
  }

  // Returns the padded ladder with the least padding for the lengths of the arrivals.
  Ladder FittedColumns() const {
    return MakePaddedLadder(
        FitCapacities(
            Lengths(), limits_.max_positions, limits_.MaxBuckets(options_),
            [](int32_t width) { return double{1} * width; }, [](int32_t) { return 0.0; }),
        limits_);
  }

  double CaptureSeconds(const Bucket& bucket) const {
    return present_.Contains(bucket) ? 0 : capture_share_ * plan_cost_.capture_seconds(bucket);
  }

  const LadderOptions& options_;
  const BatchOptions& batch_options_;
  const LadderLimits& limits_;
  const CostModel& law_;
  const Ladder& present_;
  const std::span<const Arrival> arrivals_;
  // A ladder is expected to last for a half-life. The recent arrivals pay their share of its
  // captures.
  const double capture_share_;
  const PlanCost& plan_cost_;
  const PlanCost fitting_cost_;
  const LadderFitter fitter_;
};

// Returns the latest arrivals of the last few half-lives.
std::vector<Arrival> FreshArrivals(const Traffic& traffic, const ReviewOptions& options,
                                   int32_t chunk_tokens) {
  std::vector<Arrival> arrivals = traffic.RecentArrivals();
  if (arrivals.empty()) return arrivals;
  const nanoseconds memory = kHalfLives * std::chrono::microseconds(options.half_life_us);
  std::erase_if(arrivals, [oldest = arrivals.back().at - memory](const Arrival& arrival) {
    return arrival.at < oldest;
  });
  int64_t steps = 0;
  auto first = arrivals.end();
  for (; first != arrivals.begin() && steps < kMaxSteps; --first) {
    Arrival& arrival = *std::prev(first);
    arrival.steps = std::min<int64_t>(arrival.steps, kMaxSteps - steps);
    steps += arrival.steps + (arrival.tokens - 1) / chunk_tokens;
  }
  arrivals.erase(arrivals.begin(), first);
  return arrivals;
}

std::vector<TokenWeight> RanTotals(const Traffic& traffic, const LadderLimits& limits) {
  std::vector<TokenWeight> totals = traffic.batch_tokens().Entries();
  std::erase_if(totals, [&](const TokenWeight& total) { return total.tokens > limits.max_tokens; });
  return totals;
}

// Returns the law of `costs`. If nothing was measured, returns a law whose fixed cost per step
// equals the cost of a sixteenth of the largest bucket's tokens.
CostModel LawOrAssumed(const CostModel& costs, const LadderLimits& limits) {
  CostModel law = LawOf(costs);
  if (IsMeasured(law, {.tokens = limits.max_tokens, .sequences = 1})) return law;
  constexpr double kSecondsPerToken = 1e-7;
  CostState assumed{.rows = law.rows()};
  assumed.law[0] = kSecondsPerToken * limits.max_tokens / 16;
  assumed.law[law.rows().batch_only() ? 2 : 1] = kSecondsPerToken;
  law.Restore(assumed);
  return law;
}

// Returns at most kRecentArrivals Poisson arrivals of these lengths in random order. `load` is the
// arrival rate as a share of the throughput of full batches of the largest bucket.
std::vector<Arrival> ArrivalsOf(std::span<const int32_t> lengths, double load,
                                const LadderLimits& limits, const CostModel& law) {
  std::mt19937_64 random(kSeed);
  std::vector<int32_t> drawn;
  std::ranges::sample(lengths, std::back_inserter(drawn), Traffic::kRecentArrivals, random);
  std::ranges::shuffle(drawn, random);

  const Bucket largest{.tokens = limits.max_tokens, .sequences = limits.max_sequences};
  const double seconds_per_token =
      law.Estimate({.bucket = largest, .computed_tokens = limits.max_tokens}) / limits.max_tokens /
      load;
  std::exponential_distribution<double> gap(1);
  double mean_tokens = 0;
  for (const int32_t tokens : drawn) mean_tokens += tokens / static_cast<double>(drawn.size());

  std::vector<Arrival> arrivals;
  double seconds = 0;
  for (const int32_t tokens : drawn) {
    seconds += gap(random) * mean_tokens * seconds_per_token;
    arrivals.push_back(
        {.at = MonoTime(nanoseconds(std::llround(seconds * 1e9))), .tokens = tokens});
  }
  return arrivals;
}

LadderReview Stays(std::string reason) {
  LadderReview review;
  review.reason = std::move(reason);
  return review;
}

}  // namespace

LadderReview ReviewLadder(const LadderOptions& ladder_options, const BatchOptions& batch_options,
                          const LadderLimits& limits, const Ladder& present, const CostModel& costs,
                          const Traffic& traffic, const PlanCost& plan_cost, bool force) {
  const CostModel law = LawOf(costs);
  const std::vector<Arrival> arrivals = FreshArrivals(
      traffic, ladder_options.review, RunLimitsOf(batch_options, present.largest()).chunk_tokens);
  if (arrivals.empty()) return Stays("no sequence has arrived yet");
  if (!IsMeasured(law, present.largest())) return Stays("no step has been measured yet");

  const Search search(ladder_options, batch_options, limits, law, present, arrivals, plan_cost);
  const bool matters = LadderMatters(limits.rows, batch_options.policy);
  const bool adaptive = ladder_options.strategy == StrategyKind::kAdaptive;
  const Ladder pruned = search.Pruned(present, RanTotals(traffic, limits));
  if (!matters && pruned == present) return Stays(kLadderIsFree);
  const Candidate before = search.Try(present);
  Candidate after = search.Try(pruned);
  if (adaptive && matters) after = search.Best(std::move(after));

  LadderReview review;
  review.gain = matters ? 1 - after.Cost() / before.Cost() : 0;
  review.bucket_fill_before = before.benchmark.bucket_fill;
  review.bucket_fill_after = after.benchmark.bucket_fill;
  const double min_gain = force ? 0
                                : ladder_options.review.min_gain +
                                      kOptimism / std::sqrt(static_cast<double>(arrivals.size()));
  const bool must_change = pruned != present;
  if (after.ladder == present) {
    review.reason = "no better ladder was found";
  } else if (!must_change && review.gain <= min_gain) {
    review.reason = absl::StrFormat("the best other ladder would gain %.2f%%, not more than %.2f%%",
                                    100 * review.gain, 100 * min_gain);
  } else {
    review.diff = CompareLadders(present, after.ladder);
    review.reason = absl::StrFormat("%s %.2f%% on the last %d arrivals",
                                    must_change ? "buckets had to be dropped; gains" : "gains",
                                    100 * review.gain, arrivals.size());
    for (const Bucket& bucket : search.Evicted(present, RanTotals(traffic, limits))) {
      review.evicted += std::ranges::binary_search(after.ladder.buckets(), bucket) ? 0 : 1;
    }
    review.ladder = std::make_shared<const Ladder>(std::move(after.ladder));
  }
  return review;
}

absl::StatusOr<LadderReview> AdoptLadder(const LadderOptions& ladder_options,
                                         const BatchOptions& batch_options,
                                         const LadderLimits& limits, const Ladder& present,
                                         const CostModel& costs, const Traffic& traffic,
                                         const PlanCost& plan_cost) {
  SLUICE_ASSIGN_OR_RETURN(const Ladder built,
                          BuildLadder(ladder_options, batch_options.policy, limits));
  const LadderReview fitted = ReviewLadder(ladder_options, batch_options, limits, built, costs,
                                           traffic, plan_cost, /*force=*/true);
  const CostModel law = LawOf(costs);
  const std::vector<Arrival> arrivals = FreshArrivals(
      traffic, ladder_options.review, RunLimitsOf(batch_options, present.largest()).chunk_tokens);
  const Search search(ladder_options, batch_options, limits, law, present, arrivals, plan_cost);
  // Without traffic the review found nothing, but the memory limit still applies.
  const std::vector<TokenWeight> ran = RanTotals(traffic, limits);
  Ladder wanted = search.Pruned(fitted.ladder == nullptr ? built : *fitted.ladder, ran);
  LadderReview review;
  review.evicted =
      fitted.ladder == nullptr ? std::ssize(search.Evicted(built, ran)) : fitted.evicted;
  if (!arrivals.empty() && IsMeasured(law, present.largest())) {
    const Candidate before = search.Try(present);
    const Candidate after = search.Try(wanted);
    const bool matters = LadderMatters(limits.rows, batch_options.policy);
    review.gain = matters ? 1 - after.Cost() / before.Cost() : 0;
    review.bucket_fill_before = before.benchmark.bucket_fill;
    review.bucket_fill_after = after.benchmark.bucket_fill;
    review.reason = absl::StrCat("chosen: ", std::string(NameOf(ladder_options.strategy)), "; ",
                                 matters ? absl::StrFormat("gains %.2f%% on the last %d arrivals",
                                                           100 * review.gain, arrivals.size())
                                         : kLadderIsFree);
  } else {
    review.reason = absl::StrCat("chosen: ", std::string(NameOf(ladder_options.strategy)));
  }
  if (wanted == present) {
    absl::StrAppend(&review.reason, "; the ladder is the same");
  } else {
    review.diff = CompareLadders(present, wanted);
    review.ladder = std::make_shared<const Ladder>(std::move(wanted));
  }
  return review;
}

Ladder FitLadder(std::span<const int32_t> lengths, const LadderOptions& ladder_options,
                 const BatchOptions& batch_options, const LadderLimits& limits,
                 const CostModel& costs) {
  const CostModel law = LawOrAssumed(costs, limits);
  const PlanCost free{.capture_seconds = [](const Bucket&) { return 0.0; },
                      .memory_bytes = [](const Bucket&) { return int64_t{0}; }};
  const LadderFitter fitter(ladder_options, limits, law, free);
  std::vector<std::vector<TokenWeight>> seen;
  Ladder ladder = DenseLadder(ladder_options, limits);
  for (int round = 0; round <= kRounds; ++round) {
    for (const double load : kAssumedLoads) {
      seen.push_back(
          BenchmarkLadder(ladder, ArrivalsOf(lengths, load, limits, law), batch_options, law)
              .totals);
    }
    ladder = fitter.Fit(Pool(seen));
  }
  return ladder;
}

}  // namespace sluice
