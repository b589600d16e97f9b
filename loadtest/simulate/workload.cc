#include "loadtest/simulate/workload.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/read_file.h"
#include "base/status_macros.h"
#include "base/trace_file.h"

namespace sluice::loadtest {
namespace {

constexpr int32_t kMaxTokens = 1 << 20;

int32_t LogNormal(double median, double sigma, std::mt19937_64* random) {
  std::lognormal_distribution<double> length(std::log(median), sigma);
  return static_cast<int32_t>(std::clamp(std::ceil(length(*random)), 1.0, double{kMaxTokens}));
}

int32_t DriftingLength(double progress, std::mt19937_64* random) {
  if (progress < 1.0 / 3) return LogNormal(150, 0.5, random);
  if (progress < 2.0 / 3) return LogNormal(2500, 0.4, random);
  return LogNormal((*random)() % 2 == 0 ? 400 : 4000, 0.1, random);
}

int32_t RecommendationLength(std::mt19937_64* random) {
  constexpr int32_t kHistory = 2048;  // the cap of a history
  return std::min(LogNormal(200, 1.4, random), kHistory);
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> ReadTraceLengths(const std::string& path, int32_t cap) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const absl::StatusOr<std::vector<TraceRow>> rows = ParseTrace(text);
  if (!rows.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", rows.status().message()));
  }
  std::vector<int32_t> lengths;
  lengths.reserve(rows->size());
  for (const TraceRow& row : *rows) {
    if (row.input_tokens < 1) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": has a row without input tokens"));
    }
    lengths.push_back(std::min(row.input_tokens, cap));
  }
  return lengths;
}

std::vector<int32_t> MakeLengths(Lengths kind, size_t count, int32_t cap, std::mt19937_64* random) {
  std::vector<int32_t> lengths(count);
  for (size_t i = 0; i < count; ++i) {
    switch (kind) {
      case Lengths::kLogNormal:
        lengths[i] = LogNormal(600, 1.0, random);
        break;
      case Lengths::kDrifting:
        lengths[i] = DriftingLength(static_cast<double>(i) / static_cast<double>(count), random);
        break;
      case Lengths::kRecommendation:
        lengths[i] = RecommendationLength(random);
        break;
    }
    lengths[i] = std::min(lengths[i], cap);
  }
  return lengths;
}

std::vector<Arrival> MakeArrivals(Process process, std::span<const int32_t> lengths,
                                  double tokens_per_second, std::mt19937_64* random) {
  constexpr double kBurst = 4;
  constexpr double kBurstShare = 0.2;
  constexpr double kPeriodArrivals = 200;  // the mean number in a burst and the lull before it
  const double tokens = std::accumulate(lengths.begin(), lengths.end(), 0.0);
  const double rate = tokens_per_second * static_cast<double>(lengths.size()) / tokens;
  const double lull = (1 - kBurst * kBurstShare) / (1 - kBurstShare);
  const double period = kPeriodArrivals / rate;
  std::exponential_distribution<double> gap(1.0);
  std::vector<Arrival> arrivals;
  arrivals.reserve(lengths.size());
  double now = 0;
  int64_t phase = 0;  // even in bursts, odd in lulls
  for (const int32_t length : lengths) {
    double work = gap(*random) / rate;  // the time to the next arrival at the mean rate
    if (process == Process::kBursty) {
      for (;; ++phase) {
        const double factor = phase % 2 == 0 ? kBurst : lull;
        const double end =
            period * (static_cast<double>(phase / 2) + (phase % 2 == 0 ? kBurstShare : 1));
        if (work <= (end - now) * factor) {
          work /= factor;
          break;
        }
        work -= (end - now) * factor;
        now = end;
      }
    }
    now += work;
    arrivals.push_back({.at = MonoTime(nanoseconds(std::llround(now * 1e9))), .tokens = length});
  }
  return arrivals;
}

}  // namespace sluice::loadtest
