#include "loadtest/size/sizing_report.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/option_specs.h"

namespace sluice::loadtest {
namespace {

std::vector<int32_t> Capacities(const Ladder& ladder) {
  std::vector<int32_t> capacities;
  for (const Bucket& bucket : ladder.buckets()) capacities.push_back(bucket.tokens);
  return capacities;
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
  if (sizing.replicas == 0) {
    absl::StrAppendFormat(&text, "%d replicas cannot end %.4g of the sequences within %.4g ms.\n",
                          options.max_replicas, options.share, options.objective_seconds * 1e3);
  } else {
    absl::StrAppendFormat(&text,
                          "%d replicas can carry %.4g times the recorded load (required: %.4g "
                          "times) if steps take %.4g %% longer.\n",
                          sizing.replicas, sizing.bears, options.growth, 100 * options.margin);
  }
  return text;
}

std::string SizingYaml(const Sizing& sizing, const SizingOptions& options) {
  LadderOptions ladder;
  ladder.strategy = StrategyKind::kFixed;
  ladder.fixed_tokens = Capacities(sizing.ladder);
  ladder.max_buckets = static_cast<int32_t>(ladder.fixed_tokens.size());
  return absl::StrCat(
      "engine:\n  ladder:\n",
      FormatOptions(ladder, {"strategy", "fixed_tokens", "max_buckets"}, /*indent=*/4),
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
          {"ladder", Capacities(sizing.ladder)},
          {"rows", rows}};
}

}  // namespace sluice::loadtest
