#include "loadtest/size/sizing_report.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/option_specs.h"
#include "engine/review/ladder_benchmark.h"

namespace sluice::loadtest {
namespace {

std::vector<int32_t> Capacities(const Ladder& ladder) {
  std::vector<int32_t> capacities;
  for (const Bucket& bucket : ladder.buckets()) capacities.push_back(bucket.tokens);
  return capacities;
}

// A share of sequences is reliable if at least this many may miss the objective.
constexpr double kMostMisses = 10;

std::string Replicas(int count) {
  return absl::StrCat(count, count == 1 ? " replica" : " replicas");
}

std::string Verdict(const Sizing& sizing, const SizingOptions& options) {
  // The figures of assumed costs are not those of any machine.
  if (options.costs_assumed) {
    return absl::StrFormat(
        "No number of replicas is stated, because the costs are assumed: a step takes %.4g us + "
        "%.4g us per token.\nTo do: use a journal, --costs, or --cost-base-us and "
        "--cost-per-token-us.\n",
        1e6 * options.costs.base_seconds,
        1e6 * (options.costs.seconds_per_bucket_token + options.costs.seconds_per_computed_token));
  }
  if (sizing.replicas > 0) {
    return absl::StrFormat(
        "%s can carry %.4g times the recorded load (required: %.4g times) if steps take %.4g %% "
        "longer.\n",
        Replicas(sizing.replicas), sizing.bears, options.growth, 100 * options.margin);
  }
  if (sizing.share_alone.has_value() && *sizing.share_alone < options.share) {
    return absl::StrFormat(
        "More replicas cannot help: even on idle replicas, only %.4g of the sequences end within "
        "%.4g ms and their deadlines, less than %.4g. The longest sequence has %d tokens.\n"
        "To do: raise --objective-ms, lower --share or shorten the sequences.\n",
        *sizing.share_alone, options.objective_seconds * 1e3, options.share, sizing.longest);
  }
  return absl::StrFormat(
      "%s cannot end %.4g of the sequences within %.4g ms.\n"
      "To do: raise --max-replicas or --objective-ms, or lower --share.\n",
      Replicas(options.max_replicas), options.share, options.objective_seconds * 1e3);
}

// Returns a sentence for each reason why the figures may be wrong; each has a remedy.
std::string Doubts(const Sizing& sizing, const SizingOptions& options) {
  std::string text;
  const double needed = std::round(kMostMisses / (1 - options.share));
  if (static_cast<double>(sizing.arrivals) < needed && std::isfinite(needed)) {
    absl::StrAppendFormat(&text,
                          "Only %d sequences arrived. A share of %.4g needs at least %.0f.\n",
                          sizing.arrivals, options.share, needed);
  }
  if (!sizing.lasts) {
    absl::StrAppend(&text,
                    "All sequences arrive within one objective, so they do not show the load that "
                    "replicas can carry. Use a longer recording.\n");
  }
  return text;
}

// Returns what to do with the options if some replicas meet the objective, after the remaining
// reservations.
std::string Advice(const Sizing& sizing, const SizingOptions& options) {
  const std::string doubts = Doubts(sizing, options);
  std::string text = doubts;
  if (options.journal_runs > 1) {
    absl::StrAppend(&text, "The journal has ", options.journal_runs,
                    " runs, and these figures are of the last one. Each start and each reload of "
                    "a model begins a run; a file that several daemons write mixes their runs.\n");
  }
  if (options.from_journal) {
    absl::StrAppend(&text,
                    "A journal has no refused requests. If the daemon refused some "
                    "(sluice_rejected_total), the load was higher than recorded.\n");
  }
  if (sizing.ladder_is_free) {
    absl::StrAppend(&text, "No ladder is advised: ", kLadderIsFree, ".\n");
  }
  if (sizing.replicas > 0 && !options.costs_assumed) {
    absl::StrAppend(&text, "To do: ",
                    doubts.empty() ? "" : "first remove the doubts above. If the figures stay, ",
                    "run ", Replicas(sizing.replicas),
                    ", and add the lines below to the file of sluiced --config.\n");
  }
  return text;
}

}  // namespace

std::string SizingTable(const Sizing& sizing, const SizingOptions& options) {
  const RecordedLoad& recorded = sizing.recorded;
  std::string text = absl::StrFormat(
      "Recorded: %.4g s, %.4g sequences/s (%.4g in the busiest second), %.4g tokens/s.\n",
      recorded.seconds, recorded.sequences_per_second, recorded.busiest_second,
      recorded.tokens_per_second);
  absl::StrAppend(&text,
                  "replicas    p50 ms    p99 ms  utilisation  bucket fill  within objective\n");
  for (const SizingRow& row : sizing.rows) {
    absl::StrAppendFormat(&text, "%8d %9.3f %9.3f %12.3f %13.3f %10.4f  %s\n", row.replicas,
                          row.p50_seconds * 1e3, row.p99_seconds * 1e3, row.utilisation,
                          row.bucket_fill, row.share_within, row.meets ? "yes" : "no");
  }
  absl::StrAppend(&text, Verdict(sizing, options), Advice(sizing, options));
  return text;
}

std::string SizingYaml(const Sizing& sizing, const SizingOptions& options) {
  LadderOptions ladder;
  ladder.strategy = StrategyKind::kFixed;
  ladder.fixed_tokens = Capacities(sizing.ladder);
  ladder.max_buckets = static_cast<int32_t>(ladder.fixed_tokens.size());
  const std::string chosen =
      FormatOptions(ladder, {"strategy", "fixed_tokens", "max_buckets"}, /*indent=*/4);
  return absl::StrCat("engine:\n", sizing.ladder_is_free ? "" : absl::StrCat("  ladder:\n", chosen),
                      "  batch:\n", FormatOptions(options.batch, /*indent=*/4));
}

nlohmann::json SizingToJson(const Sizing& sizing, const SizingOptions& options) {
  nlohmann::json rows = nlohmann::json::array();
  for (const SizingRow& row : sizing.rows) {
    rows.push_back({{"replicas", row.replicas},
                    {"p50_ms", row.p50_seconds * 1e3},
                    {"p99_ms", row.p99_seconds * 1e3},
                    {"utilisation", row.utilisation},
                    {"bucket_fill", row.bucket_fill},
                    {"share_within", row.share_within},
                    {"meets", row.meets}});
  }
  return {{"recorded",
           {{"seconds", sizing.recorded.seconds},
            {"sequences_per_second", sizing.recorded.sequences_per_second},
            {"busiest_second", sizing.recorded.busiest_second},
            {"tokens_per_second", sizing.recorded.tokens_per_second}}},
          {"objective_ms", options.objective_seconds * 1e3},
          {"share", options.share},
          {"growth", options.growth},
          {"margin", options.margin},
          {"replicas", sizing.replicas},
          {"bears_growth", sizing.bears},
          {"arrivals", sizing.arrivals},
          {"costs_assumed", options.costs_assumed},
          {"share_alone",
           sizing.share_alone.has_value() ? nlohmann::json(*sizing.share_alone) : nlohmann::json()},
          {"ladder_is_free", sizing.ladder_is_free},
          {"ladder", Capacities(sizing.ladder)},
          {"rows", rows}};
}

}  // namespace sluice::loadtest
