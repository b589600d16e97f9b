#include "client/progress.h"

#include <gtest/gtest.h>

namespace sluice::client {
namespace {

TEST(ProgressLine, ShowsABarIfTheShareIsKnown) {
  EXPECT_EQ(ProgressLine({5, 0, 0}, 0.5, absl::Seconds(2)),
            "[############............]  50%  5 requests, 2.5/s");
  EXPECT_EQ(ProgressLine({5, 2, 0}, std::nullopt, absl::Seconds(1)), "5 requests, 2 failed, 5.0/s");
  EXPECT_EQ(ProgressLine({0, 0, 0}, 1.5, absl::ZeroDuration()),
            "[########################] 100%  0 requests");
}

TEST(SummaryText, ShowsCountsAndPercentiles) {
  EXPECT_EQ(SummaryText({4, 1, 300}, {0.001, 0.003, 0.002}, absl::Seconds(2)),
            "requests  4 in 2.00 s, 1 failed\n"
            "tokens    300 generated, 150.0/s\n"
            "latency   p50 2.0 ms, p90 3.0 ms, p99 3.0 ms, max 3.0 ms\n");
  EXPECT_EQ(SummaryText({0, 0, 0}, {}, absl::ZeroDuration()),
            "requests  0 in 0.00 s, 0 failed\n"
            "tokens    0 generated, 0.0/s\n");
}

}  // namespace
}  // namespace sluice::client
