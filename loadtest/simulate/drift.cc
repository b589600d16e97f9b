#include "loadtest/simulate/drift.h"

#include <random>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/quantile.h"
#include "base/status_macros.h"
#include "loadtest/simulate/workload.h"

namespace sluice::loadtest {
namespace {

constexpr size_t kPhases = 3;

// The values of one phase, one per seed.
struct Phase {
  std::vector<double> adaptive, optimum, share, p50_ms, captures, changes;
};

std::vector<std::vector<Arrival>> PhasesOf(const DriftOptions& options, uint64_t seed) {
  std::mt19937_64 random(seed);
  const size_t each = options.count / kPhases;
  const std::vector<int32_t> lengths =
      MakeLengths(Lengths::kDrifting, each * kPhases, options.cap, &random);
  std::vector<std::vector<Arrival>> phases;
  nanoseconds offset(0);
  for (size_t phase = 0; phase < kPhases; ++phase) {
    phases.push_back(MakeArrivals(Process::kPoisson, std::span(lengths).subspan(phase * each, each),
                                  options.load * options.experiment.FullTokensPerSecond(),
                                  &random));
    for (Arrival& arrival : phases.back()) arrival.at += offset;
    offset = phases.back().back().at.time_since_epoch();
  }
  return phases;
}

absl::Status RunSeed(const DriftOptions& options, uint64_t seed, std::span<Phase> phases) {
  const std::vector<std::vector<Arrival>> arrivals = PhasesOf(options, seed);
  ExperimentOptions experiment = options.experiment;
  experiment.batch.policy = PolicyKind::kPacked;
  experiment.ladder.strategy = StrategyKind::kAdaptive;
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Measurement> live, RunPhases(experiment, arrivals));
  experiment.foresight = ExperimentOptions::Foresight::kFitted;
  for (size_t i = 0; i < phases.size(); ++i) {
    const Measurement& adaptive = live[i];
    SLUICE_ASSIGN_OR_RETURN(const Measurement optimum, RunExperiment(experiment, {}, arrivals[i]));
    phases[i].adaptive.push_back(adaptive.bucket_fill);
    phases[i].optimum.push_back(optimum.bucket_fill);
    phases[i].share.push_back(adaptive.bucket_fill / optimum.bucket_fill);
    phases[i].p50_ms.push_back(adaptive.p50_seconds * 1e3);
    phases[i].captures.push_back(static_cast<double>(adaptive.captures));
    phases[i].changes.push_back(static_cast<double>(adaptive.changes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<nlohmann::json> RunDrift(const DriftOptions& options) {
  if (options.count < kPhases || options.seeds < 1) {
    return absl::InvalidArgumentError("a drift needs at least 3 sequences and 1 seed");
  }
  std::vector<Phase> phases(kPhases);
  for (int i = 0; i < options.seeds; ++i) {
    SLUICE_RETURN_IF_ERROR(RunSeed(options, options.first_seed + i, std::span(phases)));
  }
  nlohmann::json rows = nlohmann::json::array();
  for (Phase& phase : phases) {
    rows.push_back({{"adaptive", Median(std::move(phase.adaptive))},
                    {"optimum", Median(std::move(phase.optimum))},
                    {"share_of_optimum", Median(std::move(phase.share))},
                    {"p50_ms", Median(std::move(phase.p50_ms))},
                    {"captures", Median(std::move(phase.captures))},
                    {"changes", Median(std::move(phase.changes))}});
  }
  return rows;
}

std::string DriftToMarkdown(const nlohmann::json& rows) {
  std::string text =
      "| phase | adaptive | its optimum | share | p50 ms | captures | changes |\n"
      "|---|---|---|---|---|---|---|\n";
  int phase = 0;
  for (const nlohmann::json& row : rows) {
    absl::StrAppendFormat(&text, "| %d | %.3f | %.3f | %.3f | %.3f | %.0f | %.0f |\n", ++phase,
                          row["adaptive"].get<double>(), row["optimum"].get<double>(),
                          row["share_of_optimum"].get<double>(), row["p50_ms"].get<double>(),
                          row["captures"].get<double>(), row["changes"].get<double>());
  }
  return text;
}

}  // namespace sluice::loadtest
