#include "client/fit.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <ostream>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands.h"
#include "client/exit_code.h"
#include "client/lengths.h"
#include "engine/option_specs.h"
#include "engine/review/adaptive.h"
#include "engine/review/ladder_trial.h"

namespace sluice::client {
namespace {

constexpr size_t kMaxSamples = 50'000;
constexpr uint64_t kSeed = 1;

std::vector<int32_t> SampleOf(std::span<const int32_t> lengths) {
  const size_t count = std::min(lengths.size(), kMaxSamples);
  std::vector<int32_t> sample(count);
  for (size_t i = 0; i < count; ++i) sample[i] = lengths[i * lengths.size() / count];
  return sample;
}

CostModel Law(const FitArguments& arguments) {
  CostState state;
  state.law[0] = arguments.step_us * 1e-6;
  state.law[1] = arguments.token_us * 1e-6;
  CostModel costs;
  costs.Restore(state);
  return costs;
}

// Returns arrivals at `load` times the rate that full batches sustain.
std::vector<Arrival> PoissonArrivals(std::span<const int32_t> lengths,
                                     const FitArguments& arguments) {
  const double step_seconds =
      1e-6 * (arguments.step_us + arguments.token_us * arguments.batch.max_batch_tokens);
  const double tokens_per_second = arguments.load * arguments.batch.max_batch_tokens / step_seconds;
  double tokens = 0;
  for (int32_t length : lengths) tokens += length;
  std::mt19937_64 random(kSeed);
  std::exponential_distribution<double> gap(tokens_per_second *
                                            static_cast<double>(lengths.size()) / tokens);
  double seconds = 0;
  std::vector<Arrival> arrivals;
  arrivals.reserve(lengths.size());
  for (int32_t length : lengths) {
    seconds += gap(random);
    arrivals.push_back(
        {.at = MonoTime(nanoseconds(static_cast<int64_t>(1e9 * seconds))), .tokens = length});
  }
  return arrivals;
}

// Returns a geometric ladder of `count` buckets.
Ladder Geometric(size_t count, const LadderOptions& base, const LadderLimits& limits) {
  LadderOptions options = base;
  options.strategy = StrategyKind::kGeometric;
  options.max_buckets = count;
  const double span = static_cast<double>(limits.max_tokens) / options.min_tokens;
  const double steps = std::max<double>(1, static_cast<double>(count) - 1);
  options.ratio =
      std::clamp(std::pow(span, 1 / steps), 1.001, OptionSpecOf<LadderOptions>("ratio").real->max);
  return *BuildLadder(options, limits);
}

std::vector<int32_t> Capacities(const Ladder& ladder) {
  std::vector<int32_t> capacities;
  for (const Bucket& bucket : ladder.buckets()) capacities.push_back(bucket.tokens);
  return capacities;
}

std::string ReadProblem(const std::string& path) {
  return absl::StrCat("sluice: ", path, ": cannot be read\n");
}

}  // namespace

FitReport Fit(std::span<const int32_t> lengths, const FitArguments& arguments) {
  const std::vector<int32_t> sample = SampleOf(lengths);
  const LadderOptions& options = arguments.ladder;
  const BatchOptions& batch = arguments.batch;
  const LadderLimits limits = {.max_tokens = batch.max_batch_tokens,
                               .max_sequences = batch.max_batch_sequences,
                               .tile_tokens = 1};
  const CostModel costs = Law(arguments);
  const std::vector<Arrival> arrivals = PoissonArrivals(sample, arguments);
  const Ladder fitted = FitLadder(sample, options, batch, limits, costs);
  const Ladder geometric = Geometric(fitted.buckets().size(), options, limits);
  return {.lengths = sample.size(),
          .fitted = Capacities(fitted),
          .geometric = Capacities(geometric),
          .fitted_efficiency = TryLadder(fitted, arrivals, batch, costs).efficiency,
          .geometric_efficiency = TryLadder(geometric, arrivals, batch, costs).efficiency};
}

std::string FitText(const FitReport& report, const FitArguments& arguments) {
  std::string text = absl::StrFormat(
      "# A ladder fitted to %d lengths by sluice fit. Simulated at load %g with steps of %g us +\n"
      "# %g us a bucket token, batches would use %.1f%% of their buckets' tokens; with the "
      "geometric\n"
      "# ladder of %d buckets %.1f%%.\n",
      report.lengths, arguments.load, arguments.step_us, arguments.token_us,
      100 * report.fitted_efficiency, report.geometric.size(), 100 * report.geometric_efficiency);
  LadderOptions ladder = arguments.ladder;
  ladder.strategy = StrategyKind::kFixed;
  ladder.fixed_tokens = report.fitted;
  ladder.max_buckets = std::max<size_t>(report.fitted.size(), 1);
  absl::StrAppend(
      &text, "engine:\n  ladder:\n",
      FormatOptions(ladder, {"strategy", "fixed_tokens", "max_buckets", "min_tokens"},
                    /*indent=*/4),
      "  batch:\n",
      FormatOptions(arguments.batch, {"max_batch_tokens", "max_batch_sequences"}, /*indent=*/4));
  return text;
}

int RunFit(const Arguments& arguments, const Console& console) {
  const FitArguments& own = arguments.fit;
  std::ifstream file;
  const bool standard_input = own.lengths == "-";
  if (!standard_input) file.open(own.lengths);
  std::istream* const in = standard_input ? console.in : &file;
  if (!in->good()) {
    *console.error << ReadProblem(own.lengths);
    return kExitUsage;
  }
  const auto lengths =
      ReadLengths(in, own.lengths,
                  {.column = own.column, .maximum = own.batch.max_batch_tokens, .clip = own.clip});
  if (!lengths.ok()) {
    *console.error << "sluice: " << lengths.status().message() << "\n";
    return kExitUsage;
  }
  const std::string text = FitText(Fit(*lengths, own), own);
  *console.out << text;
  if (own.out.empty()) return kExitOk;
  std::ofstream out(own.out);
  if (out << text << std::flush) return kExitOk;
  *console.error << "sluice: --out: " << own.out << ": cannot be written\n";
  return kExitFailed;
}

}  // namespace sluice::client
