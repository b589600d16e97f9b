#include "loadtest/bench/daemon/generate_report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "loadtest/load/stats.h"

namespace sluice::loadtest {
namespace {

using load::nanoseconds;
using nlohmann::json;
using Field = double GenerateFigures::*;

constexpr std::pair<const char*, Field> kFields[] = {
    {"tokens_per_s", &GenerateFigures::tokens_per_s},
    {"requests_per_s", &GenerateFigures::requests_per_s},
    {"tokens_per_cpu_s", &GenerateFigures::tokens_per_cpu_s},
    {"first_token_p50_ms", &GenerateFigures::first_p50_ms},
    {"first_token_p99_ms", &GenerateFigures::first_p99_ms},
    {"between_tokens_p50_ms", &GenerateFigures::between_p50_ms},
    {"between_tokens_p99_ms", &GenerateFigures::between_p99_ms},
};

double Milliseconds(nanoseconds time) { return 1e-6 * static_cast<double>(time.count()); }

Spread Over(const std::vector<GenerateFigures>& rounds, Field field) {
  std::vector<double> values;
  for (const GenerateFigures& each : rounds) values.push_back(each.*field);
  return SpreadOf(values);
}

Spread Ratio(const BatchingResult& result, Field field) {
  std::vector<double> ratios;
  for (size_t round = 0; round < result.continuous.size(); ++round) {
    const double fixed = result.fixed[round].*field;
    ratios.push_back(fixed > 0 ? result.continuous[round].*field / fixed : 0);
  }
  return SpreadOf(ratios);
}

json RoundsJson(const std::vector<GenerateFigures>& rounds) {
  json result = json::object();
  for (const auto& [name, field] : kFields) result[name] = SpreadJson(Over(rounds, field));
  int64_t calls = 0, failed = 0;
  for (const GenerateFigures& each : rounds) {
    calls += each.calls;
    failed += each.failed;
  }
  result["calls"] = calls;
  result["failed"] = failed;
  return result;
}

std::string Cells(const std::vector<GenerateFigures>& rounds) {
  const Spread tokens = Over(rounds, &GenerateFigures::tokens_per_s);
  return absl::StrFormat(" %.0f (%.0f to %.0f) | %.0f | %.1f | %.1f | %.2f | %.2f |\n",
                         tokens.median, tokens.min, tokens.max,
                         Over(rounds, &GenerateFigures::tokens_per_cpu_s).median,
                         Over(rounds, &GenerateFigures::first_p50_ms).median,
                         Over(rounds, &GenerateFigures::first_p99_ms).median,
                         Over(rounds, &GenerateFigures::between_p50_ms).median,
                         Over(rounds, &GenerateFigures::between_p99_ms).median);
}

constexpr char kColumns[] =
    " tokens/s (min to max) | tokens / CPU s | first token p50 ms | p99 ms | between tokens p50 ms "
    "| p99 ms |\n";

std::string LoadText(const BatchingResult& result) {
  return result.rate > 0 ? absl::StrFormat("open loop, %.0f/s", result.rate)
                         : absl::StrFormat("closed loop, %d at a time", result.outstanding);
}

}  // namespace

GenerateFigures FiguresOf(const load::PhaseData& data, absl::Span<const int32_t> answer_tokens,
                          nanoseconds warm_up, double cpu_s) {
  GenerateFigures figures;
  int64_t tokens = 0, ended = 0;
  std::vector<nanoseconds> first, between;
  const auto measured = [&](nanoseconds time) { return time >= warm_up && time < data.duration; };
  for (const load::CallRecord& call : data.calls) {
    ++figures.calls;
    if (call.outcome != load::Outcome::kOk) {
      ++figures.failed;
      continue;
    }
    const int32_t answer = answer_tokens[call.payload];
    figures.tokens += answer;
    if (measured(call.done)) {
      ++ended;
      tokens += answer;
    }
    if (!measured(call.scheduled)) continue;
    // If an answer is not streamed, its first token arrives together with its last one.
    const nanoseconds first_token = call.first == nanoseconds{0} ? call.done : call.first;
    first.push_back(first_token - call.scheduled);
    if (answer > 1) between.push_back((call.done - first_token) / (answer - 1));
  }
  const double seconds = 1e-9 * static_cast<double>((data.duration - warm_up).count());
  figures.tokens_per_s = static_cast<double>(tokens) / seconds;
  figures.requests_per_s = static_cast<double>(ended) / seconds;
  if (cpu_s > 0) figures.tokens_per_cpu_s = static_cast<double>(figures.tokens) / cpu_s;
  const load::Distribution firsts = load::Summarise(std::move(first));
  figures.first_p50_ms = Milliseconds(firsts.p50);
  figures.first_p99_ms = Milliseconds(firsts.p99);
  const load::Distribution betweens = load::Summarise(std::move(between));
  figures.between_p50_ms = Milliseconds(betweens.p50);
  figures.between_p99_ms = Milliseconds(betweens.p99);
  return figures;
}

Spread ThroughputRatio(const BatchingResult& result) {
  return Ratio(result, &GenerateFigures::tokens_per_s);
}

Spread FirstTokenRatio(const BatchingResult& result, Field percentile) {
  return Ratio(result, percentile);
}

json GenerateJson(const GenerateResult& result) {
  json report = {{"batching", json::array()}, {"concurrency", json::array()}};
  for (const BatchingResult& each : result.batching) {
    report["batching"].push_back(
        {{"load", LoadText(each)},
         {"static", RoundsJson(each.fixed)},
         {"continuous", RoundsJson(each.continuous)},
         {"throughput_ratio", SpreadJson(ThroughputRatio(each))},
         {"first_token_p50_ratio",
          SpreadJson(FirstTokenRatio(each, &GenerateFigures::first_p50_ms))},
         {"first_token_p99_ratio",
          SpreadJson(FirstTokenRatio(each, &GenerateFigures::first_p99_ms))}});
  }
  for (const ConcurrencyResult& each : result.concurrency) {
    json level = RoundsJson(each.rounds);
    level["outstanding"] = each.outstanding;
    report["concurrency"].push_back(std::move(level));
  }
  return report;
}

std::string GenerateTables(const GenerateResult& result) {
  std::string text =
      absl::StrCat("| load | batches |", kColumns, "|---|---|---|---|---|---|---|---|\n");
  for (const BatchingResult& each : result.batching) {
    absl::StrAppend(&text, "| ", LoadText(each), " | static |", Cells(each.fixed));
    absl::StrAppend(&text, "| ", LoadText(each), " | continuous |", Cells(each.continuous));
  }
  absl::StrAppend(&text, "\n| at a time |", kColumns, "|---|---|---|---|---|---|---|\n");
  for (const ConcurrencyResult& each : result.concurrency) {
    absl::StrAppend(&text, "| ", each.outstanding, " |", Cells(each.rounds));
  }
  return text;
}

}  // namespace sluice::loadtest
