#include "client/metrics_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "client/http_get.h"

namespace sluice::client {
namespace {

TEST(ParseMetrics, ReadsNamesLabelsAndValues) {
  const auto samples = ParseMetrics(
      "# HELP a b\n"
      "plain 3\n"
      "\n"
      "with_labels{model=\"m\",note=\"a \\\"b\\\" \\\\ {} c\\nd\"} 1.5e3 1700000000000\n"
      "trailing_comma{x=\"1\",} +Inf\r\n"
      "empty{} NaN\n");
  ASSERT_TRUE(samples.ok()) << samples.status();
  ASSERT_EQ(samples->size(), 4);
  EXPECT_EQ((*samples)[0].name, "plain");
  EXPECT_EQ((*samples)[0].value, 3);
  EXPECT_EQ((*samples)[1].labels.at("model"), "m");
  EXPECT_EQ((*samples)[1].labels.at("note"), "a \"b\" \\ {} c\nd");
  EXPECT_EQ((*samples)[1].value, 1500);
  EXPECT_EQ((*samples)[2].labels.at("x"), "1");
  EXPECT_TRUE(std::isinf((*samples)[2].value));
  EXPECT_TRUE(std::isnan((*samples)[3].value));
}

TEST(ParseMetrics, NamesTheBadLine) {
  for (const char* bad : {"ok 1\n<html>\n", "ok 1\nname\n", "ok 1\nname{x=\"1\" 5\n",
                          "ok 1\nname{x=1} 5\n", "ok 1\nname{\"1\"} 5\n", "ok 1\nname{x=\"\\",
                          "ok 1\nname{x=\"1\"} five\n", "ok 1\n{x=\"1\"} 5\n"}) {
    const auto samples = ParseMetrics(bad);
    ASSERT_FALSE(samples.ok()) << bad;
    EXPECT_EQ(samples.status().message(), "line 2 of the metrics is not a valid sample") << bad;
  }
}

TEST(SumOf, AddsTheSamplesThatMatchAllLabels) {
  const std::vector<Sample> samples = {{"t", {{"model", "a"}, {"kind", "x"}}, 1},
                                       {"t", {{"model", "a"}, {"kind", "y"}}, 2},
                                       {"t", {{"model", "b"}, {"kind", "x"}}, 4},
                                       {"u", {{"model", "a"}}, 8}};
  EXPECT_EQ(SumOf(samples, "t", {}), 7);
  EXPECT_EQ(SumOf(samples, "t", {{"model", "a"}}), 3);
  EXPECT_EQ(SumOf(samples, "t", {{"model", "a"}, {"kind", "y"}}), 2);
  EXPECT_EQ(SumOf(samples, "u", {{"kind", "x"}}), 0);
  EXPECT_EQ(SumOf(samples, "v", {}), 0);
}

TEST(HttpBody, NeedsStatus200) {
  EXPECT_EQ(*HttpBody("HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody\r\n\r\nmore"), "body\r\n\r\nmore");
  EXPECT_EQ(*HttpBody("HTTP/1.0 200\r\n\r\n"), "");
  for (const char* bad : {"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 404 Not Found\r\n\r\nx",
                          "HTTP/1.1\r\n\r\n", "SSH-2.0 200\r\n\r\n"}) {
    EXPECT_EQ(HttpBody(bad).status().code(), absl::StatusCode::kFailedPrecondition) << bad;
  }
}

TEST(HttpGet, ReportsThatNoServerAnswers) {
  const absl::Status status = HttpGet("127.0.0.1:1", "/metrics", absl::Seconds(5)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("127.0.0.1:1"));
}

}  // namespace
}  // namespace sluice::client
