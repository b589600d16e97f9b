#include "loadtest/simulate/prediction.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "engine/review/virtual_run.h"
#include "engine/schedule/scheduler.h"
#include "engine/schedule/step_budget.h"

namespace sluice::loadtest {
namespace {

// Requires `latencies` that are not empty.
RunFigures FiguresOf(std::vector<double> latencies, double span_seconds) {
  std::sort(latencies.begin(), latencies.end());
  RunFigures figures{.sequences = std::ssize(latencies),
                     .p50_seconds = Quantile(latencies, 0.5),
                     .p99_seconds = Quantile(latencies, 0.99)};
  double sum = 0;
  for (double each : latencies) sum += each;
  figures.mean_seconds = sum / static_cast<double>(latencies.size());
  if (span_seconds > 0) {
    figures.sequences_per_second = static_cast<double>(latencies.size()) / span_seconds;
  }
  return figures;
}

absl::StatusOr<RunFigures> Measured(const RecordedRun& run) {
  std::vector<double> latencies;
  MonoTime last{};
  for (size_t i = 0; i < run.arrivals.size(); ++i) {
    if (run.ends[i] == MonoTime::max()) continue;
    latencies.push_back(Seconds(run.ends[i] - run.arrivals[i].at));
    last = std::max(last, run.ends[i]);
  }
  if (latencies.empty()) return absl::InvalidArgumentError("the journal has no ended sequence");
  const double span = Seconds(last - run.arrivals.front().at);
  RunFigures figures = FiguresOf(std::move(latencies), span);
  figures.batches = run.steps;
  figures.busy_share = span > 0 ? run.step_seconds / span : 0;
  return figures;
}

SlowTimes SlowTimesOf(const RecordedRun& run, double p99_seconds) {
  SlowTimes slow;
  double seconds = 0, work_seconds = 0;
  const MonoTime first = run.arrivals.front().at;
  const auto add = [&](MonoTime begin, MonoTime end) {
    ++slow.count;
    seconds += Seconds(end - begin);
    work_seconds += Seconds(end - begin) / run.pace.Between(begin - first, end - first);
  };
  MonoTime begin{}, end = MonoTime::min();  // one period
  for (size_t i = 0; i < run.arrivals.size(); ++i) {
    if (run.ends[i] == MonoTime::max()) continue;
    const MonoTime at = run.arrivals[i].at;
    if (Seconds(run.ends[i] - at) <= p99_seconds) continue;
    if (at > end) {
      if (end != MonoTime::min()) add(begin, end);
      begin = at;
    }
    end = std::max(end, run.ends[i]);
  }
  if (end != MonoTime::min()) add(begin, end);
  if (work_seconds > 0) slow.pace = seconds / work_seconds;
  return slow;
}

RunFigures Simulated(const RecordedRun& run, const StepCosts& costs) {
  std::vector<double> latencies;
  const VirtualRunOptions options{
      .cost = costs,
      .host = run.host,
      .stretch =
          [&](MonoTime now, nanoseconds work) {
            return run.pace.Stretch(now - run.arrivals.front().at, work);
          },
      .recompute = run.recompute,
      .chunk_tokens = RunLimitsOf(run.batch, run.ladder->largest()).chunk_tokens,
      .on_done =
          [&](size_t i, MonoTime end, bool ran) {
            if (ran) latencies.push_back(Seconds(end - run.arrivals[i].at));
          }};
  Scheduler scheduler(run.batch, run.half_life, std::make_shared<const Ladder>(*run.ladder),
                      run.first_costs, nullptr);
  const VirtualResult result = RunVirtually(run.arrivals, options, &scheduler);
  RunFigures figures =
      latencies.empty() ? RunFigures{} : FiguresOf(std::move(latencies), result.span_seconds);
  figures.batches = result.batches;
  figures.busy_share = result.span_seconds > 0 ? result.busy_seconds / result.span_seconds : 0;
  return figures;
}

// Calls `visit` with a name, the figure in the unit of the name, and the digits to print.
template <typename Visit>
void ForEachFigure(const Visit& visit) {
  visit(
      "sequences/s", [](const RunFigures& of) { return of.sequences_per_second; }, 1);
  visit(
      "mean ms", [](const RunFigures& of) { return 1e3 * of.mean_seconds; }, 2);
  visit(
      "p50 ms", [](const RunFigures& of) { return 1e3 * of.p50_seconds; }, 2);
  visit(
      "p99 ms", [](const RunFigures& of) { return 1e3 * of.p99_seconds; }, 2);
  visit(
      "steps", [](const RunFigures& of) { return static_cast<double>(of.batches); }, 0);
  visit(
      "busy share", [](const RunFigures& of) { return of.busy_share; }, 3);
}

}  // namespace

absl::StatusOr<Prediction> Predict(const RecordedRun& run, const StepCosts* costs) {
  if (!run.ladder.has_value()) return absl::InvalidArgumentError("the journal has no ladder");
  for (const Arrival& arrival : run.arrivals) {
    const int64_t most = arrival.tokens + (run.recompute ? int64_t{arrival.steps} - 1 : 0);
    if (arrival.tokens < 1 || most > run.max_tokens) {
      return absl::InvalidArgumentError(
          absl::StrCat("a sequence of ", most, " tokens; the ladder holds ", run.max_tokens));
    }
  }
  SLUICE_ASSIGN_OR_RETURN(RunFigures measured, Measured(run));
  const StepCosts own = StepCosts::Measured(run.costs);
  return Prediction{measured, Simulated(run, costs == nullptr ? own : *costs), run.host,
                    SlowTimesOf(run, measured.p99_seconds)};
}

nlohmann::json PredictionToJson(const Prediction& prediction) {
  nlohmann::json made = {
      {"measured", {{"sequences", prediction.measured.sequences}}},
      {"simulated", {{"sequences", prediction.simulated.sequences}}},
      {"host",
       {{"wake ms", 1e3 * prediction.host.wake_seconds},
        {"turnaround ms", 1e3 * prediction.host.turnaround_seconds},
        {"turnaround ms per sequence", 1e3 * prediction.host.turnaround_seconds_per_sequence},
        {"arrival ms", 1e3 * prediction.host.arrival_seconds}}},
      {"slow times", {{"count", prediction.slow.count}, {"pace", prediction.slow.pace}}}};
  ForEachFigure([&](const char* name, const auto& figure, int /*digits*/) {
    made["measured"][name] = figure(prediction.measured);
    made["simulated"][name] = figure(prediction.simulated);
  });
  return made;
}

std::string PredictionToMarkdown(const Prediction& prediction) {
  std::string text = "| | measured | simulated | simulated / measured |\n|---|---|---|---|\n";
  ForEachFigure([&](const char* name, const auto& figure, int digits) {
    const double measured = figure(prediction.measured);
    const double simulated = figure(prediction.simulated);
    absl::StrAppendFormat(&text, "| %s | %.*f | %.*f | %s |\n", name, digits, measured, digits,
                          simulated,
                          measured > 0 ? absl::StrFormat("%.3f", simulated / measured) : "");
  });
  absl::StrAppendFormat(&text,
                        "\nThe measured sequences above the p99 waited or ran in %d separate "
                        "periods, in which work took %.3f times its time in the whole run.\n",
                        prediction.slow.count, prediction.slow.pace);
  absl::StrAppend(&text, "A journal has no refused requests, so both columns lack them.\n");
  return text;
}

}  // namespace sluice::loadtest
