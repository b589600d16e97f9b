#include <cmath>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/write_file.h"
#include "engine/model/model.h"
#include "loadtest/bench/daemon/benchmarks.h"
#include "loadtest/bench/daemon/daemon.h"
#include "loadtest/bench/daemon/generate_report.h"
#include "loadtest/bench/daemon/generate_workload.h"
#include "loadtest/load/commit.h"
#include "loadtest/load/report_json.h"
#include "loadtest/load/run.h"

namespace sluice::loadtest {
namespace {

using nlohmann::json;

// The load of the open loop as a share of the static batches' capacity, so that both arms carry it.
constexpr double kOpenShare = 0.7;

class GenerateBench {
 public:
  GenerateBench(const GenerateOptions& options, const ModelConfig& config)
      : options_(options),
        warm_up_(absl::ToChronoNanoseconds(options.warm_up)),
        duration_(absl::ToChronoNanoseconds(options.warm_up + options.phase)),
        workload_(static_cast<int32_t>(config.max_positions),
                  static_cast<int32_t>(config.vocab_size), options.seed) {}

  absl::Status Run();
  json Report() const;
  std::string Tables() const { return GenerateTables(result_); }

 private:
  absl::Status StartArms();
  // Decides the open loop's rate.
  absl::Status PlanLoads();
  absl::Status RunRound(int round);
  absl::Status Compare(int round, BatchingResult* result);
  absl::StatusOr<GenerateFigures> Measure(const char* name, const Daemon& daemon,
                                          const Traffic& traffic);

  const GenerateOptions& options_;
  const load::nanoseconds warm_up_, duration_;
  GenerateWorkload workload_;
  std::unique_ptr<Daemon> fixed_, continuous_;
  GenerateResult result_;
};

absl::Status GenerateBench::Run() {
  SLUICE_RETURN_IF_ERROR(StartArms());
  SLUICE_RETURN_IF_ERROR(PlanLoads());
  for (int round = 0; round < options_.rounds; ++round) {
    SLUICE_RETURN_IF_ERROR(RunRound(round));
  }
  return absl::OkStatus();
}

absl::Status GenerateBench::StartArms() {
  for (const auto& [arm, continuous] :
       {std::pair(&fixed_, "false"), std::pair(&continuous_, "true")}) {
    // The ladder is not reviewed, because a review could fall into a phase of only one arm.
    SLUICE_ASSIGN_OR_RETURN(*arm, Daemon::Start(options_.sluiced, options_.model,
                                                {"--engine.batch.continuous", continuous,
                                                 "--engine.ladder.review.interval", "0"}));
  }
  return absl::OkStatus();
}

absl::Status GenerateBench::PlanLoads() {
  SLUICE_ASSIGN_OR_RETURN(const Traffic traffic, workload_.Closed(options_.outstanding, duration_));
  SLUICE_ASSIGN_OR_RETURN(const GenerateFigures peak, Measure("static, first", *fixed_, traffic));
  const double rate = std::max(1.0, std::round(kOpenShare * peak.requests_per_s));
  result_.batching = {{.outstanding = options_.outstanding}, {.rate = rate}};
  for (const int outstanding : options_.concurrency) result_.concurrency.push_back({outstanding});
  return absl::OkStatus();
}

absl::Status GenerateBench::RunRound(int round) {
  for (BatchingResult& each : result_.batching) {
    SLUICE_RETURN_IF_ERROR(Compare(round, &each));
  }
  for (ConcurrencyResult& each : result_.concurrency) {
    SLUICE_ASSIGN_OR_RETURN(const Traffic traffic, workload_.Closed(each.outstanding, duration_));
    SLUICE_ASSIGN_OR_RETURN(
        const GenerateFigures figures,
        Measure(absl::StrCat("at a time: ", each.outstanding).c_str(), *continuous_, traffic));
    each.rounds.push_back(figures);
  }
  return absl::OkStatus();
}

absl::Status GenerateBench::Compare(int round, BatchingResult* result) {
  SLUICE_ASSIGN_OR_RETURN(const Traffic traffic,
                          result->rate > 0 ? workload_.Open(result->rate, duration_)
                                           : workload_.Closed(result->outstanding, duration_));
  for (int i = 0; i < 2; ++i) {
    // The arm that runs first alternates between rounds.
    const bool continuous = (i + round) % 2 == 1;
    SLUICE_ASSIGN_OR_RETURN(const GenerateFigures figures,
                            Measure(continuous ? "continuous" : "static",
                                    continuous ? *continuous_ : *fixed_, traffic));
    (continuous ? result->continuous : result->fixed).push_back(figures);
  }
  return absl::OkStatus();
}

absl::StatusOr<GenerateFigures> GenerateBench::Measure(const char* name, const Daemon& daemon,
                                                       const Traffic& traffic) {
  load::RunOptions run;
  run.streaming = true;
  load::Live live;
  SLUICE_ASSIGN_OR_RETURN(const absl::Duration before, daemon.process().CpuTime());
  const load::PhaseData data =
      traffic.outstanding > 0
          ? load::RunClosedLoop(run, daemon.channels(), workload_.pool(), traffic.payloads,
                                traffic.outstanding, traffic.duration, nullptr, &live)
          : load::RunOpenLoop(run, daemon.channels(), workload_.pool(), traffic.arrivals,
                              traffic.payloads, traffic.duration, nullptr, &live);
  SLUICE_ASSIGN_OR_RETURN(const absl::Duration after, daemon.process().CpuTime());
  if (!data.errors.empty()) {
    const load::ErrorSample& error = data.errors.begin()->second;
    return absl::InternalError(
        absl::StrCat(name, ": ", error.count, " requests failed, one with ", error.first_message));
  }
  const GenerateFigures figures =
      FiguresOf(data, workload_.answer_tokens(), warm_up_, absl::ToDoubleSeconds(after - before));
  std::cerr << absl::StrFormat(
      "%-16s %6.1f/s  %8.0f tokens/s  first token p50 %8.1f  p99 %8.1f ms\n", name, traffic.rate,
      figures.tokens_per_s, figures.first_p50_ms, figures.first_p99_ms);
  return figures;
}

json GenerateBench::Report() const {
  json host = load::HostJson();
  host.erase("name");
  json report = GenerateJson(result_);
  report["benchmark"] = "generate";
  report["commit"] = std::string(load::kCommit);
  report["host"] = host;
  report["rounds"] = options_.rounds;
  report["phase_s"] = absl::ToDoubleSeconds(options_.phase);
  report["warm_up_s"] = absl::ToDoubleSeconds(options_.warm_up);
  report["seed"] = options_.seed;
  return report;
}

}  // namespace

absl::StatusOr<json> RunGenerate(const GenerateOptions& options) {
  if (options.rounds < 1 || options.outstanding < 1 || options.phase <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("rounds, outstanding and seconds must be above 0");
  }
  SLUICE_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model,
                          LoadModel("model", 1, options.model));
  constexpr int64_t kPositions = 248;
  if (model->config.max_positions < kPositions) {
    return absl::InvalidArgumentError(absl::StrCat("the model has ", model->config.max_positions,
                                                   " positions, needs ", kPositions));
  }
  GenerateBench bench(options, model->config);
  SLUICE_RETURN_IF_ERROR(bench.Run());
  if (!options.table.empty()) {
    SLUICE_RETURN_IF_ERROR(WriteFile(options.table, bench.Tables()));
  }
  return bench.Report();
}

}  // namespace sluice::loadtest
