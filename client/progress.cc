#include "client/progress.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/quantile.h"

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

std::string SummaryText(const RunCounts& counts, std::vector<double> latency_seconds,
                        absl::Duration elapsed) {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  std::string text = absl::StrFormat("requests  %d in %.2f s, %d failed\n", counts.requests,
                                     seconds, counts.errors);
  absl::StrAppendFormat(&text, "tokens    %d generated, %.1f/s\n", counts.tokens,
                        seconds > 0 ? static_cast<double>(counts.tokens) / seconds : 0.0);
  if (latency_seconds.empty()) return text;
  const auto milliseconds = [&](double share) {
    return 1000 * Quantile(std::span(latency_seconds), share);
  };
  absl::StrAppendFormat(&text, "latency   p50 %.1f ms, p90 %.1f ms, p99 %.1f ms, max %.1f ms\n",
                        milliseconds(0.5), milliseconds(0.9), milliseconds(0.99), milliseconds(1));
  return text;
}

}  // namespace sluice::client
