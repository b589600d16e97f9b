#include "loadtest/bench/daemon/buckets_report.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::loadtest {
namespace {

using nlohmann::json;
using Figure = std::function<double(const Measurement&)>;

bool Ran(const std::vector<Measurement>& rounds) {
  return !rounds.empty() && std::all_of(rounds.begin(), rounds.end(),
                                        [](const Measurement& each) { return each.ran; });
}

Spread Over(const std::vector<Measurement>& rounds, const Figure& figure) {
  std::vector<double> values;
  for (const Measurement& each : rounds) values.push_back(figure(each));
  return SpreadOf(values);
}

double Sum(const std::vector<Measurement>& rounds, const Figure& figure) {
  double sum = 0;
  for (const Measurement& each : rounds) sum += figure(each);
  return sum;
}

double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

// The efficiency over the rounds of a load.
struct Efficiency {
  explicit Efficiency(const std::vector<Measurement>& rounds)
      : useful(Sum(rounds, [](const auto& each) { return each.useful_tokens; })),
        padding(Ratio(useful, Sum(rounds, [](const auto& each) { return each.bucket_tokens; }))),
        executed(Ratio(useful, Sum(rounds, [](const auto& each) { return each.computed_tokens; }))),
        tokens_per_batch(Ratio(useful, Sum(rounds, [](const auto& each) { return each.batches; }))),
        tokens_per_cpu_s(Ratio(useful, Sum(rounds, [](const auto& each) { return each.cpu_s; }))) {}

  double useful, padding, executed, tokens_per_batch, tokens_per_cpu_s;
  double bucket_overhead() const { return padding > 0 ? 1 / padding - 1 : 0; }
};

json LoadJson(const LoadResult& load, const std::vector<Measurement>& rounds) {
  json result = {{"load", load.rate > 0 ? json(load.rate) : json("closed loop")}};
  if (!Ran(rounds)) {
    result["beyond_peak"] = true;
    return result;
  }
  const Efficiency efficiency(rounds);
  const auto spread = [&](const Figure& figure) { return SpreadJson(Over(rounds, figure)); };
  result["sequences_per_s"] = spread([](const auto& each) { return each.sequences_per_s; });
  result["tokens_per_s"] = spread([](const auto& each) { return each.tokens_per_s; });
  result["p50_ms"] = spread([](const auto& each) { return each.p50_ms; });
  result["p99_ms"] = spread([](const auto& each) { return each.p99_ms; });
  result["client_lateness_p99_ms"] = spread([](const auto& each) { return each.lateness_p99_ms; });
  result["calls"] = Sum(rounds, [](const auto& each) { return each.calls; });
  result["bucket_fill"] = efficiency.padding;
  result["executed_efficiency"] = efficiency.executed;
  result["bucket_overhead"] = efficiency.bucket_overhead();
  result["useful_tokens_per_batch"] = efficiency.tokens_per_batch;
  result["useful_tokens_per_cpu_s"] = efficiency.tokens_per_cpu_s;
  return result;
}

// Returns the groups in order, each once, without the last arm's group.
std::vector<std::string> OtherGroups(const BucketsResult& result) {
  std::vector<std::string> groups;
  for (const ArmOptions& arm : result.arms) {
    if (arm.group == result.arms.back().group) continue;
    if (groups.empty() || groups.back() != arm.group) groups.push_back(arm.group);
  }
  return groups;
}

std::string PeakRow(const BucketsResult& result, size_t arm) {
  const std::vector<Measurement>& rounds = result.loads.front().arms[arm];
  const Efficiency efficiency(rounds);
  const Spread sequences = Over(rounds, [](const auto& each) { return each.sequences_per_s; });
  const Spread tokens = Over(rounds, [](const auto& each) { return each.tokens_per_s; });
  return absl::StrFormat(
      "| %s | %.0f (%.0f to %.0f) | %.0f | %.0f | %.0f | %.3f | %.3f | %.1f %% |\n",
      result.arms[arm].name, sequences.median, sequences.min, sequences.max, tokens.median,
      efficiency.tokens_per_cpu_s, efficiency.tokens_per_batch, efficiency.executed,
      efficiency.padding, 100 * efficiency.bucket_overhead());
}

std::string LatencyCell(const std::vector<Measurement>& rounds) {
  if (!Ran(rounds)) return " beyond its peak |";
  const Spread p50 = Over(rounds, [](const auto& each) { return each.p50_ms; });
  const Spread p99 = Over(rounds, [](const auto& each) { return each.p99_ms; });
  return absl::StrFormat(" %.1f / %.1f (%.1f to %.1f) |", p50.median, p99.median, p99.min, p99.max);
}

}  // namespace

Spread ThroughputRatio(const BucketsResult& result, const LoadResult& load,
                       const std::string& group) {
  std::vector<double> ratios;
  for (size_t round = 0; round < load.arms.back().size(); ++round) {
    double best = 0;
    for (size_t arm = 0; arm < result.arms.size(); ++arm) {
      if (result.arms[arm].group != group) continue;
      best = std::max(best, load.arms[arm][round].tokens_per_s);
    }
    ratios.push_back(Ratio(load.arms.back()[round].tokens_per_s, best));
  }
  return SpreadOf(ratios);
}

double BestP99(const BucketsResult& result, const LoadResult& load, const std::string& group) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  double best = kNone;
  for (size_t arm = 0; arm < result.arms.size(); ++arm) {
    if (result.arms[arm].group != group || !Ran(load.arms[arm])) continue;
    best =
        std::min(best, Over(load.arms[arm], [](const auto& each) { return each.p99_ms; }).median);
  }
  return best == kNone ? 0 : best;
}

json ArmJson(const BucketsResult& result, size_t arm) {
  const ArmOptions& options = result.arms[arm];
  json report = {{"name", options.name},
                 {"policy", NameOf(options.policy)},
                 {"strategy", NameOf(options.strategy)},
                 {"max_queue_delay_us", options.max_queue_delay_us},
                 {"loads", json::array()}};
  Measurement sum;
  for (const LoadResult& load : result.loads) {
    report["loads"].push_back(LoadJson(load, load.arms[arm]));
    for (const Measurement& each : load.arms[arm]) {
      sum.calls += each.calls;
      sum.failed += each.failed;
      sum.wrong += each.wrong;
      sum.captures += each.captures;
    }
  }
  report["calls"] = sum.calls;
  report["failed"] = sum.failed;
  report["wrong"] = sum.wrong;
  report["captures"] = sum.captures;
  return report;
}

json ComparisonJson(const BucketsResult& result) {
  json comparison = json::object();
  for (const std::string& group : OtherGroups(result)) {
    json latency = json::array();
    for (size_t i = 1; i < result.loads.size(); ++i) {
      const LoadResult& load = result.loads[i];
      const auto p99 = [&](const std::string& of) {
        const double best = BestP99(result, load, of);
        return best > 0 ? json(best) : json("beyond its peak");
      };
      latency.push_back({{"rate", load.rate},
                         {"p99_ms", p99(result.arms.back().group)},
                         {"other_p99_ms", p99(group)}});
    }
    comparison[group] = {
        {"throughput_ratio", SpreadJson(ThroughputRatio(result, result.loads.front(), group))},
        {"latency", latency}};
  }
  return comparison;
}

std::string BucketsTables(const BucketsResult& result) {
  std::string text =
      "| arm | sequences/s (min to max) | useful tokens/s | useful tokens / CPU s | useful tokens "
      "/ "
      "batch | executed eff. | bucket fill | bucket overhead "
      "|\n|---|---|---|---|---|---|---|---|\n";
  for (size_t arm = 0; arm < result.arms.size(); ++arm) text += PeakRow(result, arm);
  text += "\n| p50 / p99 (min to max) in ms at |";
  for (size_t i = 1; i < result.loads.size(); ++i) {
    absl::StrAppendFormat(&text, " %.0f/s |", result.loads[i].rate);
  }
  text += "\n|---|";
  for (size_t i = 1; i < result.loads.size(); ++i) text += "---|";
  text += "\n";
  for (size_t arm = 0; arm < result.arms.size(); ++arm) {
    absl::StrAppend(&text, "| ", result.arms[arm].name, " |");
    for (size_t i = 1; i < result.loads.size(); ++i) text += LatencyCell(result.loads[i].arms[arm]);
    text += "\n";
  }
  return text;
}

}  // namespace sluice::loadtest
