// sluice-scale runs a day of traffic against the shipped autoscaling rule and against fixed fleets.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/version.h"
#include "base/write_file.h"
#include "loadtest/parse_flags.h"
#include "loadtest/scale/day.h"
#include "loadtest/scale/fleet.h"
#include "loadtest/scale/rule_file.h"
#include "loadtest/scale/scale_report.h"
#include "loadtest/simulate/cost_flags.h"
#include "loadtest/simulate/option_flags.h"

namespace sluice::loadtest {
namespace {

struct ScaleFlags {
  std::string rule, adapter, json, plot, table;
  double peak_replicas = 6;
  double share = 0.99;
  std::vector<int> fixed;
  DayOptions day;
  CostFlags costs{.base_us = 5000, .per_token_us = 100, .of = "computed", .file = ""};
};

void AddScaleFlags(CLI::App* app, ScaleFlags* f, FleetOptions* o) {
  app->add_option("--rule", f->rule, "HorizontalPodAutoscaler or ScaledObject")->required();
  app->add_option("--adapter", f->adapter, "rules of prometheus-adapter, for an HPA");
  app->add_option("--peak-replicas", f->peak_replicas,
                  "load of the busiest hour, in replicas that compute full batches all the time")
      ->check(CLI::Range(0.01, 1000.0))
      ->capture_default_str();
  app->add_option("--hours", f->day.hours, "length of the day; if shorter, its load changes faster")
      ->check(CLI::Range(0.1, 240.0))
      ->capture_default_str();
  app->add_option("--surges", f->day.surges, "surges of 15 minutes that add half of the load")
      ->check(CLI::Range(0, 100))
      ->capture_default_str();
  app->add_option("--seed", o->seed, "for arrivals and balancer")->capture_default_str();
  app->add_option("--startup-s", o->startup_seconds, "time until a new replica is ready")
      ->check(CLI::Range(0.0, 1e5))
      ->capture_default_str();
  app->add_option("--objective-s", o->objective_seconds, "latency objective")
      ->check(CLI::Range(1e-6, 1e6))
      ->capture_default_str();
  app->add_option("--share", f->share, "share of the sequences that must meet it in a fixed fleet")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app->add_option("--fixed", f->fixed,
                  "sizes of fixed fleets; default: the fewest that meet the objective, and the "
                  "mean number of "
                  "the autoscaled fleet")
      ->delimiter(',')
      ->check(CLI::Range(1, 1000));
  AddOptionFlag(app, "max_batch_tokens", &o->batch, /*least=*/1);
  app->add_option("--out", f->json, "write the result as JSON");
  app->add_option("--plot", f->plot, "write replicas, p99 and cost over the day as SVG");
  app->add_option("--table", f->table, "write the table as Markdown");
  AddCostFlags(app, &f->costs);
}

int Fail(std::string_view message) {
  std::cerr << "sluice-scale: " << message << "\n";
  return 1;
}

int FailWith(const absl::Status& status) {
  return Fail({status.message().data(), status.message().size()});
}

// Returns the number of replicas that midnight's load keeps busy for 70 % of the time.
int FirstReplicas(const ScaleFlags& flags) {
  return static_cast<int>(std::ceil(flags.peak_replicas * DayShape(0) / 0.7));
}

FleetRun Fixed(int replicas, const std::vector<Arrival>& arrivals, FleetOptions options) {
  options.rule.reset();
  options.replicas = replicas;
  return {absl::StrCat("fixed, ", replicas), *RunFleet(arrivals, options)};
}

// Returns the fewest replicas that meet the objective, if any number does.
int Fewest(double share, int most, const std::vector<Arrival>& arrivals,
           const FleetOptions& options) {
  int low = 1, high = most;
  while (low < high) {
    const int middle = (low + high) / 2;
    const bool enough = Fixed(middle, arrivals, options).result.share_within >= share;
    (enough ? high : low) = enough ? middle : middle + 1;
  }
  return low;
}

std::vector<int> FixedSizes(const ScaleFlags& flags, const FleetResult& autoscaled,
                            const std::vector<Arrival>& arrivals, const FleetOptions& options) {
  if (!flags.fixed.empty()) return flags.fixed;
  const int most = static_cast<int>(std::ceil(flags.peak_replicas * flags.day.surge * 2)) + 1;
  const int mean = static_cast<int>(std::lround(autoscaled.replica_hours / flags.day.hours));
  const int fewest = Fewest(flags.share, most, arrivals, options);
  if (mean < 1 || mean == fewest) return {fewest};
  return {fewest, mean};
}

absl::Status Write(const std::string& path, const std::string& text) {
  return path.empty() ? absl::OkStatus() : WriteFile(path, text);
}

int Main(int argc, char** argv) {
  CLI::App app{
      "A day of traffic against a fleet that Kubernetes scales by the rule of a manifest, and "
      "against "
      "fixed fleets: the daemon's scheduler in every replica, on virtual time. Deterministic."};
  app.set_version_flag("--version", absl::StrCat("sluice-scale ", Version()));
  ScaleFlags flags;
  FleetOptions options;
  options.batch.max_batch_tokens = 16384;
  AddScaleFlags(&app, &flags, &options);
  if (const std::optional<int> status = ParseFlags(app, argc, argv)) return *status;

  const absl::Status set = SetCosts(flags.costs, &options.costs);
  if (!set.ok()) return FailWith(set);
  absl::StatusOr<AutoscalerRule> rule = ReadScalingRule(flags.rule, flags.adapter);
  if (!rule.ok()) return FailWith(rule.status());
  options.replicas = std::clamp(FirstReplicas(flags), rule->min_replicas, rule->max_replicas);
  options.rule = *std::move(rule);
  const ExperimentOptions capacity{.batch = options.batch, .costs = options.costs};
  flags.day.peak_tokens_per_second = flags.peak_replicas * capacity.FullTokensPerSecond();
  flags.day.cap = std::min(flags.day.cap, options.batch.max_batch_tokens);
  std::mt19937_64 random(options.seed);
  const std::vector<Arrival> arrivals = MakeDay(flags.day, &random);

  absl::StatusOr<FleetResult> autoscaled = RunFleet(arrivals, options);
  if (!autoscaled.ok()) return FailWith(autoscaled.status());
  std::vector<FleetRun> runs = {{"autoscaled", *std::move(autoscaled)}};
  for (const int size : FixedSizes(flags, runs.front().result, arrivals, options)) {
    runs.push_back(Fixed(size, arrivals, options));
  }
  const std::string table = ScaleTable(runs, options);
  std::cout << arrivals.size() << " sequences\n" << table;
  absl::Status written = Write(flags.json, ScaleToJson(runs, options).dump(1) + "\n");
  written.Update(Write(flags.plot, ScalePlot(runs, options)));
  written.Update(Write(flags.table, table));
  return written.ok() ? 0 : FailWith(written);
}

}  // namespace
}  // namespace sluice::loadtest

int main(int argc, char** argv) { return sluice::loadtest::Main(argc, argv); }
