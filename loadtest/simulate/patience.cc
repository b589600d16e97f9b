#include "loadtest/simulate/patience.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/enum_names.h"
#include "base/quantile.h"
#include "base/status_macros.h"
#include "engine/ladder/strategy.h"
#include "engine/review/virtual_run.h"
#include "engine/schedule/scheduler.h"
#include "engine/schedule/step_budget.h"
#include "loadtest/simulate/workload.h"

namespace sluice::loadtest {
namespace {

constexpr std::chrono::seconds kDeadlines[] = {std::chrono::seconds(1), std::chrono::seconds(60)};
constexpr const char* kNames[] = {"short", "long"};
constexpr std::chrono::seconds kSettled{120};
constexpr double kGreed = 10;

// The callers are numbered from 1. Odd callers send short calls.
size_t KindOf(uint32_t caller) { return caller % 2 == 1 ? 0 : 1; }

// The values of one kind of calls, one per seed.
struct Kind {
  std::vector<double> goodput, p99_s, refused, late, fairness;
};

std::vector<Arrival> ArrivalsOf(const PatienceOptions& options, Process process, double load,
                                const std::vector<int32_t>& trace, std::mt19937_64* random) {
  const double rate = load * options.experiment.FullTokensPerSecond();
  std::vector<int32_t> lengths;
  double tokens = 0;
  while (tokens < rate * options.seconds) {
    std::vector<int32_t> more =
        trace.empty() ? MakeLengths(Lengths::kLogNormal, 1000, options.cap, random) : trace;
    for (const int32_t length : more) tokens += length;
    lengths.insert(lengths.end(), more.begin(), more.end());
  }
  std::vector<Arrival> arrivals = MakeArrivals(process, lengths, rate, random);
  std::vector<double> weights(options.callers, 1);
  if (options.greedy) weights[0] = weights[1] = kGreed;
  std::discrete_distribution<uint32_t> caller(weights.begin(), weights.end());
  for (Arrival& arrival : arrivals) {
    arrival.caller = 1 + caller(*random);
    arrival.deadline = arrival.at + kDeadlines[KindOf(arrival.caller)];
  }
  return arrivals;
}

class Run {
 public:
  Run(const PatienceOptions& options, const Ladder& ladder, bool defers)
      : options_(options),
        scheduler_(options.experiment.batch, std::chrono::minutes(1),
                   std::make_shared<const Ladder>(ladder),
                   CostModel(options.experiment.assumed_rows), nullptr),
        admission_(
            {.queue = options.queue,
             .priority_step = std::chrono::microseconds(options.experiment.batch.priority_step_us),
             .defers = defers}) {
    for (const Bucket& bucket : ladder.buckets()) {
      const StepShape full{.bucket = bucket,
                           .computed_tokens = bucket.tokens,
                           .distinct_positions = bucket.tokens,
                           .sampled_rows = 1};
      for (int i = 0; i < 3; ++i) scheduler_.Observe(full, options.experiment.costs(full));
    }
  }

  void Measure(std::span<const Arrival> arrivals, Kind* kinds) {
    enum class End : uint8_t { kLate, kInTime, kRefused };
    std::vector<End> ends(arrivals.size(), End::kLate);
    std::vector<double> latencies(arrivals.size());
    RunVirtually(arrivals,
                 {.cost = [this](const StepShape& step) { return options_.experiment.costs(step); },
                  .rows = options_.experiment.costs.rows,
                  .on_done =
                      [&](size_t i, MonoTime end, bool ran) {
                        if (!ran || end > arrivals[i].deadline) return;
                        ends[i] = End::kInTime;
                        latencies[i] = Seconds(end - arrivals[i].at);
                      },
                  .admission = &admission_,
                  .on_refused = [&](size_t i) { ends[i] = End::kRefused; }},
                 &scheduler_);
    const MonoTime begin = arrivals.front().at + kSettled, end = arrivals.back().at;
    for (size_t kind = 0; kind < 2; ++kind) {
      std::vector<double> own(options_.callers), in_time;
      int64_t calls = 0, refused = 0;
      for (size_t i = 0; i < arrivals.size(); ++i) {
        const Arrival& arrival = arrivals[i];
        if (KindOf(arrival.caller) != kind || (options_.greedy && arrival.caller <= 2)) continue;
        if (arrival.deadline < begin || arrival.deadline > end) continue;
        ++calls;
        if (ends[i] == End::kRefused) ++refused;
        if (ends[i] != End::kInTime) continue;
        in_time.push_back(latencies[i]);
        own[arrival.caller - 1] += arrival.tokens;
      }
      double sum = 0, squares = 0, callers = 0;
      for (size_t i = options_.greedy ? 2 : 0; i < own.size(); ++i) {
        if (KindOf(i + 1) != kind) continue;
        sum += own[i];
        squares += own[i] * own[i];
        ++callers;
      }
      const auto count = static_cast<double>(calls);
      Kind& out = kinds[kind];
      out.goodput.push_back(sum / options_.experiment.FullTokensPerSecond() / Seconds(end - begin));
      out.late.push_back(static_cast<double>(calls - refused - std::ssize(in_time)) / count);
      out.p99_s.push_back(sluice::Quantile(std::span(in_time), 0.99));
      out.refused.push_back(static_cast<double>(refused) / count);
      out.fairness.push_back(squares > 0 ? sum * sum / (callers * squares) : 0);
    }
  }

 private:
  const PatienceOptions& options_;
  Scheduler scheduler_;
  AdmissionControl admission_;
};

}  // namespace

absl::StatusOr<nlohmann::json> RunPatience(const PatienceOptions& options) {
  std::vector<int32_t> trace;
  if (!options.trace.empty()) {
    SLUICE_ASSIGN_OR_RETURN(trace, ReadTraceLengths(options.trace, options.cap));
  }
  if (options.callers < (options.greedy ? 4 : 2)) {
    return absl::InvalidArgumentError("each kind of calls needs a caller that is measured");
  }
  const ExperimentOptions& experiment = options.experiment;
  SLUICE_ASSIGN_OR_RETURN(const Ladder ladder,
                          BuildLadder(experiment.ladder, PolicyKind::kPacked,
                                      {.max_tokens = experiment.batch.max_batch_tokens,
                                       .max_sequences = experiment.batch.max_batch_sequences,
                                       .rows = experiment.assumed_rows,
                                       .max_positions = options.cap}));
  nlohmann::json rows = nlohmann::json::array();
  for (const std::string& name : options.processes) {
    const std::optional<Process> process = EnumOf<Process>(name);
    if (!process.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("unknown process ", name));
    }
    for (const double load : options.loads) {
      for (const bool defers : {false, true}) {
        Kind kinds[2];
        for (int seed = 0; seed < options.seeds; ++seed) {
          std::mt19937_64 random(options.first_seed + seed);
          const std::vector<Arrival> arrivals = ArrivalsOf(options, *process, load, trace, &random);
          Run(options, ladder, defers).Measure(arrivals, kinds);
        }
        nlohmann::json row = {
            {"process", name}, {"load", load}, {"rule", defers ? "backlog" : "max_wait"}};
        for (size_t kind = 0; kind < 2; ++kind) {
          Kind& k = kinds[kind];
          row[kNames[kind]] = {{"goodput", Median(k.goodput)},
                               {"p99_s", Median(k.p99_s)},
                               {"refused", Median(k.refused)},
                               {"late", Median(k.late)},
                               {"fairness", Median(k.fairness)}};
        }
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

std::string PatienceToMarkdown(const nlohmann::json& rows) {
  std::string table =
      "| arrivals | load | rule | short: goodput | p99, s | refused | late | fairness | "
      "long: goodput | p99, s | refused | late | fairness |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const nlohmann::json& row : rows) {
    absl::StrAppendFormat(&table, "| %s | %g | %s |", row["process"].get<std::string>(),
                          row["load"].get<double>(), row["rule"].get<std::string>());
    for (const char* kind : kNames) {
      const auto value = [&](const char* key) { return row[kind][key].get<double>(); };
      absl::StrAppendFormat(&table, " %.3f | %.3f | %.3f | %.3f | %.3f |", value("goodput"),
                            value("p99_s"), value("refused"), value("late"), value("fairness"));
    }
    table += "\n";
  }
  return table;
}

}  // namespace sluice::loadtest
