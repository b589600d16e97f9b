#include "client/trials.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "client/buckets_view.h"
#include "client/table.h"
#include "engine/option_specs.h"
#include "engine/review/ladder_benchmark.h"

namespace sluice::client {
namespace {

namespace v1 = admin::v1;

constexpr char kOneBucket[] = "one bucket";
constexpr double kNoGain = 0.01;  // smaller gains are not worth a ladder
constexpr int kMemoryColumn = 7;  // of TrialsTable, after P99 MS

std::string Milliseconds(double seconds) { return absl::StrFormat("%.3f", 1000 * seconds); }

// Returns the trial of this name, or nullptr.
const StrategyTrial* Find(const StrategyTrials& trials, const std::string& name) {
  const auto found = std::ranges::find(trials.trials, name, &StrategyTrial::name);
  return found == trials.trials.end() ? nullptr : &*found;
}

// Returns the gain of one trial over another.
double GainOver(const StrategyTrial& trial, const StrategyTrial& other) {
  return 1 - (1 - trial.gain) / (1 - other.gain);
}

}  // namespace

StrategyTrials TrialsOf(const v1::TryStrategiesResponse& response) {
  StrategyTrials trials;
  trials.arrivals = response.arrivals();
  trials.margin = response.margin();
  trials.ladder_is_free = response.ladder_is_free();
  trials.best = response.best();
  for (const v1::StrategyTrial& trial : response.trials()) {
    StrategyTrial& each = trials.trials.emplace_back();
    each.name = trial.name();
    each.choice = {trial.options().begin(), trial.options().end()};
    for (const v1::Bucket& bucket : trial.buckets()) {
      each.buckets.push_back(
          {.tokens = bucket.tokens(), .sequences = bucket.rows(), .positions = bucket.positions()});
    }
    each.bucket_fill = trial.bucket_fill();
    each.device_seconds = trial.device_seconds();
    each.mean_latency_seconds = trial.mean_latency_seconds();
    each.p50_latency_seconds = trial.p50_latency_seconds();
    each.p99_latency_seconds = trial.p99_latency_seconds();
    each.batches = trial.batches();
    each.plan_bytes = trial.plan_bytes();
    each.captures = trial.captures();
    each.capture_seconds = trial.capture_seconds();
    each.gain = trial.gain();
    each.wasted_share = trial.wasted_share();
  }
  return trials;
}

const StrategyTrial& BestOf(const StrategyTrials& trials) {
  const StrategyTrial* const best = Find(trials, trials.best);
  SLUICE_CHECK(best != nullptr);
  return *best;
}

std::string TrialsTable(const StrategyTrials& trials) {
  // Plans take no memory on a CPU.
  const bool has_memory = std::ranges::any_of(
      trials.trials, [](const StrategyTrial& trial) { return trial.plan_bytes > 0; });
  std::vector<std::string> head = {"LADDER", "BUCKETS", "FILL",     "DEVICE S", "MEAN MS",
                                   "P50 MS", "P99 MS",  "CAPTURES", "GAIN"};
  const auto memory = [has_memory](std::vector<std::string> row, const std::string& cell) {
    if (has_memory) row.insert(row.begin() + kMemoryColumn, cell);
    return row;
  };
  Table table(memory(std::move(head), "MIB"));
  for (const StrategyTrial& trial : trials.trials) {
    table.AddRow(memory(
        {trial.name, absl::StrCat(trial.buckets.size()), Percent(trial.bucket_fill),
         absl::StrFormat("%.3f", trial.device_seconds), Milliseconds(trial.mean_latency_seconds),
         Milliseconds(trial.p50_latency_seconds), Milliseconds(trial.p99_latency_seconds),
         absl::StrCat(trial.captures), Percent(trial.gain)},
        absl::StrFormat("%.2f", Mebibytes(trial.plan_bytes))));
  }
  return table.Render();
}

std::string VerdictText(const StrategyTrials& trials) {
  const StrategyTrial& first = trials.trials.front();
  const StrategyTrial& best = BestOf(trials);
  const StrategyTrial& most = *std::ranges::max_element(trials.trials, {}, &StrategyTrial::gain);
  std::string text;
  if (trials.ladder_is_free) {
    return absl::StrCat("Keep \"", first.name, "\": ", kLadderIsFree, ".");
  }
  if (&best == &first) {
    text = absl::StrFormat(
        "Keep \"%s\": no other ladder gains more than %s on %d arrivals, and such a gain may be "
        "chance.",
        first.name, Percent(trials.margin), trials.arrivals);
  } else {
    text = absl::StrFormat(
        "Take \"%s\": it gains %s over \"%s\" on %d arrivals (device time %.3f of it, mean latency "
        "%.3f of it), more than the %s that may be chance.",
        best.name, Percent(best.gain), first.name, trials.arrivals,
        best.device_seconds / first.device_seconds,
        best.mean_latency_seconds / first.mean_latency_seconds, Percent(trials.margin));
    if (most.gain > best.gain) {
      absl::StrAppendFormat(&text,
                            " \"%s\" gains %s, but the difference may be chance and its plans "
                            "take more memory.",
                            most.name, Percent(most.gain));
    }
  }
  const StrategyTrial* const one = Find(trials, kOneBucket);
  if (one == nullptr) return text;
  const double bought = GainOver(best, *one), possible = GainOver(most, *one);
  if (bought > trials.margin) {
    absl::StrAppendFormat(&text, " Bucketing gains %s over a single bucket.", Percent(bought));
  } else if (possible > kNoGain) {
    absl::StrAppendFormat(&text,
                          " The largest gain over a single bucket is %s, which may be chance; try "
                          "again with more arrivals.",
                          Percent(possible));
  } else {
    absl::StrAppend(&text,
                    " Bucketing gains nothing here: a single bucket does as well, because steps "
                    "cost nearly the same in any bucket.");
  }
  return text;
}

std::string ChoiceFlags(const LadderChoice& choice) {
  std::string flags;
  for (const auto& [option, value] : choice) {
    absl::StrAppend(&flags, flags.empty() ? "" : " ", OptionSpecOf<LadderOptions>(option).Flag(),
                    " ", value);
  }
  return flags;
}

}  // namespace sluice::client
