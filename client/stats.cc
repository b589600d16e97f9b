#include "client/stats.h"

#include <map>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands.h"
#include "client/exit_code.h"
#include "client/message_json.h"
#include "client/metrics_text.h"
#include "client/response.h"
#include "client/table.h"
#include "proto/metric_names.h"

namespace sluice::client {
namespace {

std::string MeanMilliseconds(const inference::StatisticDuration& duration) {
  if (duration.count() == 0) return "-";
  return absl::StrFormat(
      "%.2f", static_cast<double>(duration.ns()) / 1e6 / static_cast<double>(duration.count()));
}

std::string Mebibytes(const inference::ModelStatistics& model) {
  uint64_t bytes = 0;
  for (const auto& usage : model.memory_usage()) {
    // The system may drop mapped pages of files, and the packed weights count too.
    if (usage.type() != "mapped") bytes += usage.byte_size();
  }
  return absl::StrFormat("%.1f", static_cast<double>(bytes) / (1 << 20));
}

std::string PercentOf(double part, double whole) { return whole > 0 ? Percent(part / whole) : "-"; }

// The counts of a model in the metrics.
struct Counts {
  double useful_tokens, bucket_tokens, computed_tokens;
  double plan_hits, plan_lookups;
  double waiting, running, rejected;
};

Counts CountsOf(const inference::ModelStatistics& model, const std::vector<Sample>& samples) {
  const auto sum = [&](const metric::Metric& metric, std::map<std::string, std::string> labels) {
    labels.insert({{"model", model.name()}, {"version", model.version()}});
    return SumOf(samples, metric.name, labels);
  };
  return {.useful_tokens = sum(metric::kTokens, {{"kind", "useful"}}),
          .bucket_tokens = sum(metric::kTokens, {{"kind", "bucket"}}),
          .computed_tokens = sum(metric::kTokens, {{"kind", "computed"}}),
          .plan_hits = sum(metric::kPlanLookups, {{"result", "hit"}}),
          .plan_lookups = sum(metric::kPlanLookups, {}),
          .waiting = sum(metric::kWaiting, {}),
          .running = sum(metric::kRunning, {}),
          // A refused request has no version.
          .rejected = SumOf(samples, metric::kRejected.name, {{"model", model.name()}})};
}

}  // namespace

std::string StatisticsTable(const inference::ModelStatisticsResponse& statistics) {
  Table table({"MODEL", "VERSION", "REQUESTS", "FAILED", "ROWS", "BATCHES", "QUEUE MS",
               "COMPUTE MS", "TOTAL MS", "MEMORY MIB"});
  for (const auto& model : statistics.model_stats()) {
    const inference::InferStatistics& requests = model.inference_stats();
    table.AddRow({model.name(), model.version(), absl::StrCat(requests.success().count()),
                  absl::StrCat(requests.fail().count()), absl::StrCat(model.inference_count()),
                  absl::StrCat(model.execution_count()), MeanMilliseconds(requests.queue()),
                  MeanMilliseconds(requests.compute_infer()), MeanMilliseconds(requests.success()),
                  Mebibytes(model)});
  }
  return table.Render();
}

std::string EfficiencyTable(const inference::ModelStatisticsResponse& statistics,
                            const std::vector<Sample>& samples) {
  Table table({"MODEL", "VERSION", "USEFUL TOKENS", "BUCKET FILL", "EXECUTED EFF", "PLAN HITS",
               "WAITING", "RUNNING", "REJECTED"});
  for (const auto& model : statistics.model_stats()) {
    const Counts counts = CountsOf(model, samples);
    const auto whole = [](double count) { return absl::StrFormat("%.0f", count); };
    table.AddRow({model.name(), model.version(), whole(counts.useful_tokens),
                  PercentOf(counts.useful_tokens, counts.bucket_tokens),
                  PercentOf(counts.useful_tokens, counts.computed_tokens),
                  PercentOf(counts.plan_hits, counts.plan_lookups), whole(counts.waiting),
                  whole(counts.running), whole(counts.rejected)});
  }
  return table.Render();
}

nlohmann::json StatisticsJson(const inference::ModelStatisticsResponse& statistics,
                              const std::vector<Sample>* samples) {
  nlohmann::json json = ToJson(statistics);
  for (int i = 0; samples != nullptr && i < statistics.model_stats_size(); ++i) {
    const Counts counts = CountsOf(statistics.model_stats(i), *samples);
    json["model_stats"][i]["metrics"] = {{"useful_tokens", counts.useful_tokens},
                                         {"bucket_tokens", counts.bucket_tokens},
                                         {"computed_tokens", counts.computed_tokens},
                                         {"plan_hits", counts.plan_hits},
                                         {"plan_lookups", counts.plan_lookups},
                                         {"waiting", counts.waiting},
                                         {"running", counts.running},
                                         {"rejected", counts.rejected}};
  }
  return json;
}

int RunStats(const Arguments& arguments, const Connection& connection, const Console& console) {
  const StatsArguments& own = arguments.stats;
  const auto statistics = connection.Statistics(own.model);
  if (!statistics.ok()) return Fail(statistics.status(), arguments, console);
  absl::StatusOr<std::vector<Sample>> samples = std::vector<Sample>();
  const bool has_metrics = !own.metrics_address.empty();
  if (has_metrics) samples = FetchMetrics(own.metrics_address);
  if (has_metrics) {
    const absl::Status same =
        CheckSameMetrics(connection.Instance(), arguments.server, samples, own.metrics_address);
    if (!same.ok()) samples = same;
  }
  const bool counted = has_metrics && samples.ok();
  if (own.json) {
    *console.out << JsonLine(StatisticsJson(*statistics, counted ? &*samples : nullptr));
  } else {
    *console.out << StatisticsTable(*statistics);
    if (counted) *console.out << "\n" << EfficiencyTable(*statistics, *samples);
  }
  if (!samples.ok()) {
    *console.error << "no efficiency figures, because /metrics cannot be used: "
                   << samples.status().message() << " (--metrics-address)\n";
  }
  return kExitOk;
}

}  // namespace sluice::client
