#include "client/progress.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::client {

std::string ProgressLine(const RunCounts& counts, std::optional<double> share,
                         absl::Duration elapsed) {
  constexpr int kWidth = 24;
  std::string line;
  if (share.has_value()) {
    const double part = std::clamp(*share, 0.0, 1.0);
    const int filled = static_cast<int>(part * kWidth);
    absl::StrAppendFormat(&line, "[%s%s] %3.0f%%  ", std::string(filled, '#'),
                          std::string(kWidth - filled, '.'), part * 100);
  }
  absl::StrAppendFormat(&line, "%d requests", counts.requests);
  if (counts.errors > 0) absl::StrAppendFormat(&line, ", %d failed", counts.errors);
  const double seconds = absl::ToDoubleSeconds(elapsed);
  if (seconds > 0) absl::StrAppendFormat(&line, ", %.1f/s", counts.requests / seconds);
  return line;
}

double Percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  const double rank = std::ceil(percent / 100 * static_cast<double>(values.size()));
  const size_t index = std::min(values.size(), static_cast<size_t>(std::max(rank, 1.0))) - 1;
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(index), values.end());
  return values[index];
}

std::string SummaryText(const RunCounts& counts, const std::vector<double>& latency_seconds,
                        absl::Duration elapsed) {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  std::string text = absl::StrFormat("requests  %d in %.2f s, %d failed\n", counts.requests,
                                     seconds, counts.errors);
  absl::StrAppendFormat(&text, "tokens    %d generated, %.1f/s\n", counts.tokens,
                        seconds > 0 ? static_cast<double>(counts.tokens) / seconds : 0.0);
  if (latency_seconds.empty()) return text;
  const auto milliseconds = [&](double percent) {
    return 1000 * Percentile(latency_seconds, percent);
  };
  absl::StrAppendFormat(&text, "latency   p50 %.1f ms, p90 %.1f ms, p99 %.1f ms, max %.1f ms\n",
                        milliseconds(50), milliseconds(90), milliseconds(99), milliseconds(100));
  return text;
}

}  // namespace sluice::client
