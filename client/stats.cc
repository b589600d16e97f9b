#include "client/stats.h"

#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands.h"
#include "client/exit_code.h"
#include "client/metrics_text.h"
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
  for (const auto& usage : model.memory_usage()) bytes += usage.byte_size();
  return absl::StrFormat("%.1f", static_cast<double>(bytes) / (1 << 20));
}

std::string PercentOf(double part, double whole) { return whole > 0 ? Percent(part / whole) : "-"; }

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
    const std::map<std::string, std::string> labels = {{"model", model.name()},
                                                       {"version", model.version()}};
    const auto sum = [&](const metric::Metric& metric,
                         std::map<std::string, std::string> more = {}) {
      more.insert(labels.begin(), labels.end());
      return SumOf(samples, metric.name, more);
    };
    const double useful = sum(metric::kTokens, {{"kind", "useful"}});
    table.AddRow(
        {model.name(), model.version(), absl::StrFormat("%.0f", useful),
         PercentOf(useful, sum(metric::kTokens, {{"kind", "bucket"}})),
         PercentOf(useful, sum(metric::kTokens, {{"kind", "computed"}})),
         PercentOf(sum(metric::kPlanLookups, {{"result", "hit"}}), sum(metric::kPlanLookups)),
         absl::StrFormat("%.0f", sum(metric::kWaiting)),
         absl::StrFormat("%.0f", sum(metric::kRunning)),
         absl::StrFormat("%.0f",
                         SumOf(samples, metric::kRejected.name, {{"model", model.name()}}))});
  }
  return table.Render();
}

int RunStats(const Arguments& arguments, const Connection& connection, const Console& console) {
  const auto statistics = connection.Statistics(arguments.stats.model);
  if (!statistics.ok()) return Fail(statistics.status(), arguments, console);
  *console.out << StatisticsTable(*statistics);
  const std::string& address = arguments.stats.metrics_address;
  if (address.empty()) return kExitOk;
  const auto samples = FetchMetrics(address);
  if (samples.ok()) {
    *console.out << "\n" << EfficiencyTable(*statistics, *samples);
  } else {
    *console.error << "no efficiency figures, because /metrics could not be read: "
                   << samples.status().message() << " (--metrics-address)\n";
  }
  return kExitOk;
}

}  // namespace sluice::client
