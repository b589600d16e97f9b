#include "loadtest/load/stats.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "base/quantile.h"

namespace sluice::load {
namespace {

// Returns points at equal steps of log(1 / (1 - share)), which show both the body and the tail.
std::vector<std::pair<double, double>> Cdf(const std::vector<nanoseconds>& sorted) {
  std::vector<std::pair<double, double>> points;
  if (sorted.empty()) return points;
  constexpr int kPoints = 200;
  const double last = std::log(static_cast<double>(sorted.size()));
  const auto add = [&](double percent) {
    points.emplace_back(
        percent,
        Seconds(QuantileOfSorted(std::span<const nanoseconds>(sorted), percent / 100)) * 1e3);
  };
  for (int i = 1; i < kPoints; ++i) add(100 * (1 - std::exp(-last * i / kPoints)));
  add(100);
  return points;
}

std::vector<Second> BySecond(const PhaseData& data) {
  constexpr nanoseconds kSecond = std::chrono::seconds(1);
  std::vector<Second> seconds(
      static_cast<size_t>((data.duration + kSecond - nanoseconds{1}) / kSecond));
  std::vector<std::vector<nanoseconds>> latencies(seconds.size());
  for (const CallRecord& call : data.calls) {
    const auto arrived = static_cast<size_t>(call.scheduled / kSecond);
    if (arrived >= seconds.size()) continue;
    ++seconds[arrived].arrivals;
    ++seconds[arrived].outcomes[static_cast<size_t>(call.outcome)];
    if (call.outcome != Outcome::kOk) continue;
    latencies[arrived].push_back(call.done - call.scheduled);
    const auto answered = static_cast<size_t>(call.done / kSecond);
    if (answered >= seconds.size()) continue;  // it arrived in the drain time
    ++seconds[answered].answers;
    seconds[answered].tokens += call.tokens;
  }
  for (size_t i = 0; i < seconds.size(); ++i) {
    std::sort(latencies[i].begin(), latencies[i].end());
    seconds[i].p50 = QuantileOfSorted(std::span<const nanoseconds>(latencies[i]), 0.5);
    seconds[i].p99 = QuantileOfSorted(std::span<const nanoseconds>(latencies[i]), 0.99);
  }
  return seconds;
}

// The durations of the calls that the figures include.
struct Samples {
  std::vector<nanoseconds> latency, service, first, rejected, lateness;
};

void Count(const CallRecord& call, const Objective& objective, PhaseStats& stats,
           Samples& samples) {
  ++stats.calls;
  ++stats.outcomes[static_cast<size_t>(call.outcome)];
  if (call.outcome != Outcome::kNotSent) samples.lateness.push_back(call.sent - call.scheduled);
  if (call.outcome == Outcome::kRejected) samples.rejected.push_back(call.done - call.sent);
  if (call.outcome != Outcome::kOk) return;
  const nanoseconds latency = call.done - call.scheduled;
  samples.latency.push_back(latency);
  samples.service.push_back(call.done - call.sent);
  if (call.first.count() > 0) samples.first.push_back(call.first - call.scheduled);
  if (latency <= objective.latency) stats.goodput_per_s += 1;
}

// Counts the answers that left the server while requests arrived. Answers after the last arrival
// come from a queue that then no longer fills, so they do not count as throughput at this load.
void CountAnswers(const PhaseData& data, nanoseconds warm_up, PhaseStats& stats) {
  for (const CallRecord& call : data.calls) {
    const bool counts =
        call.outcome == Outcome::kOk && call.done >= warm_up && call.done < data.duration;
    if (!counts) continue;
    stats.answered_per_s += 1;
    stats.tokens_per_s += call.tokens;
  }
}

}  // namespace

Distribution Summarise(std::vector<nanoseconds> values) {
  Distribution summary;
  if (values.empty()) return summary;
  std::sort(values.begin(), values.end());
  summary.count = std::ssize(values);
  summary.mean = std::accumulate(values.begin(), values.end(), nanoseconds{0}) / summary.count;
  summary.min = values.front();
  summary.p50 = QuantileOfSorted(std::span<const nanoseconds>(values), 0.5);
  summary.p90 = QuantileOfSorted(std::span<const nanoseconds>(values), 0.9);
  summary.p95 = QuantileOfSorted(std::span<const nanoseconds>(values), 0.95);
  summary.p99 = QuantileOfSorted(std::span<const nanoseconds>(values), 0.99);
  summary.p999 = QuantileOfSorted(std::span<const nanoseconds>(values), 0.999);
  summary.max = values.back();
  return summary;
}

PhaseStats Analyse(const PhaseData& data, nanoseconds warm_up, const Objective& objective) {
  PhaseStats stats;
  Samples samples;
  for (const CallRecord& call : data.calls) {
    if (call.scheduled >= warm_up) Count(call, objective, stats, samples);
    if (call.outcome == Outcome::kWrong) ++stats.wrong;
  }
  CountAnswers(data, warm_up, stats);
  const double length = Seconds(data.duration - warm_up);
  if (stats.calls > 0 && length > 0) {
    stats.within = stats.goodput_per_s / static_cast<double>(stats.calls);
    stats.meets_objective = 100 * stats.within >= objective.percentile;
    stats.offered_per_s = static_cast<double>(stats.calls) / length;
    stats.answered_per_s /= length;
    stats.goodput_per_s /= length;
    stats.tokens_per_s /= length;
  }
  std::sort(samples.latency.begin(), samples.latency.end());
  stats.cdf = Cdf(samples.latency);
  stats.latency = Summarise(std::move(samples.latency));
  stats.service = Summarise(std::move(samples.service));
  stats.first = Summarise(std::move(samples.first));
  stats.rejected = Summarise(std::move(samples.rejected));
  stats.lateness = Summarise(std::move(samples.lateness));
  stats.seconds = BySecond(data);
  return stats;
}

}  // namespace sluice::load
