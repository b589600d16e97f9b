#include "server/admin/status_page/status_json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "server/observe/bucket_summary.h"
#include "tests/server/protocol/messages.h"

namespace sluice {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ExampleStats;

const MonoTime kNow{std::chrono::hours(1)};

json Parsed(const ModelStatus& model, const DaemonStatus& daemon = {}) {
  return json::parse(StatusJson(daemon, {&model, 1}, kNow));
}
json ParsedModel(const ModelStatus& model) { return Parsed(model)["models"][0]; }

TEST(StatusJson, DescribesTheDaemon) {
  const json daemon =
      json::parse(StatusJson({.version = "1.2",
                              .phase = Phase::kDraining,
                              .uptime = milliseconds(1500),
                              .backend = {.device = "cpu", .profile = "p", .page_tokens = 4},
                              .policy = PolicyKind::kFifoPacked,
                              .failed_models = {"m version 2"}},
                             {}, kNow))["daemon"];
  EXPECT_EQ(daemon, json({{"version", "1.2"},
                          {"phase", "draining"},
                          {"uptime", 1.5},
                          {"device", "cpu"},
                          {"profile", "p"},
                          {"policy", "fifo_packed"},
                          {"refused", json::object()},
                          {"goodput", nullptr},
                          {"failed_models", {"m version 2"}}}));
}

TEST(StatusJson, RefusalsByReasonLowerTheGoodputIfTheServerIsAtFault) {
  DaemonStatus daemon;
  daemon.refused[static_cast<size_t>(Reason::kQueueFull)] = 50;
  daemon.refused[static_cast<size_t>(Reason::kMemory)] = 4;
  daemon.refused[static_cast<size_t>(Reason::kInput)] = 1000;
  const json seen =
      Parsed({.stats = ExampleStats(kNow), .recent = {}, .ok = 90, .failed = 6}, daemon)["daemon"];
  EXPECT_EQ(seen["refused"], json({{"queue_full", 50}, {"memory", 4}, {"input", 1000}}));
  EXPECT_EQ(seen["goodput"], 90.0 / (90 + 6 + 54));
}

TEST(StatusJson, QueueAndTotalsEqualTheEnginesStatistics) {
  ModelStats stats = ExampleStats(kNow);
  stats.attention = {AttentionVariant::Kind::kSplit, 4};
  const json model = ParsedModel({.stats = stats, .recent = {}, .ok = 30, .failed = 31});
  EXPECT_EQ(model["queue"], json({{"requests_waiting", 11},
                                  {"requests_running", 12},
                                  {"sequences_waiting", 13},
                                  {"sequences_running", 14},
                                  {"tokens", 15},
                                  {"bytes", 16},
                                  {"oldest_age", 0.17},
                                  {"drain", 0.18}}));
  EXPECT_EQ(model["memory"], json({{"plans", 20},
                                   {"weights", 22},
                                   {"adapters", 28},
                                   {"activations", 21},
                                   {"kv", 23},
                                   {"pinned", 24},
                                   {"head_graphs", 27},
                                   {"mapped", 25},
                                   {"copied", 26}}));
  EXPECT_EQ(model["ladder"], json({{"added", 1},
                                   {"removed", 2},
                                   {"merged", 3},
                                   {"split", 4},
                                   {"evicted", 5},
                                   {"reviews", 6}}));
  EXPECT_EQ(model["steps"], 19);
  EXPECT_EQ(model["attention"], "split:4");
  EXPECT_EQ(model["ok"], 30);
  EXPECT_EQ(model["failed"], 31);
  EXPECT_EQ(model["version"], 3);
  EXPECT_EQ(model["lengths"], json({{3, 1.5}, {7, 2.0}}));
  EXPECT_EQ(model["tokens_per_second"], 70);
}

TEST(StatusJson, RatiosOfBucketsAreOverTheLastHour) {
  ModelStats stats = ExampleStats(kNow);
  stats.device_tokens_per_second = 20;
  stats.memory_limit_effect = "Smaller.";
  HistoryStretch minute;
  minute.begin = kNow - seconds(60);
  minute.end = kNow;
  minute.ladder = std::make_shared<const std::vector<Bucket>>();
  minute.all = {.batches = 4,
                .hits = 3,
                .sequences = 9,
                .useful_tokens = 48,
                .computed_tokens = 50,
                .bucket_tokens = 64,
                .replay = seconds(15)};
  minute.buckets = {{.bucket = stats.buckets[0].bucket, .counts = minute.all}};
  HistoryStretch old = minute;
  old.begin = kNow - seconds(8000);
  old.end = kNow - seconds(7000);
  const json model = ParsedModel({.stats = stats, .recent = {}, .history = {old, minute}});
  EXPECT_EQ(model["batches"]["count"], 4) << "since the start";
  EXPECT_EQ(model["batches"]["useful_tokens"], 48);
  EXPECT_EQ(model["memory_limit_effect"], "Smaller.");
  EXPECT_EQ(model["last_hour"], json({{"seconds", 60.0},
                                      {"batches", 4},
                                      {"hit_rate", 0.75},
                                      {"bucket_fill", 0.75},
                                      {"executed_efficiency", 0.96},
                                      {"busy_share", 0.25},
                                      {"wasted_share", 2 * 2.0 / 15},
                                      {"useful_share", 48.0 / (60 * 20)},
                                      {"device_tokens_per_second", 20.0}}));
  ASSERT_EQ(model["buckets"].size(), 2u);
  const json& used = model["buckets"][0];
  EXPECT_EQ(used["bucket"], "16x8");
  EXPECT_EQ(used["batches"], 4);
  EXPECT_EQ(used["sequences"], 9);
  EXPECT_EQ(used["rows"], 8);
  EXPECT_EQ(used["bucket_fill"], 0.75);
  EXPECT_EQ(used["executed_efficiency"], 0.96);
  EXPECT_EQ(used["hit_rate"], 0.75);
  EXPECT_EQ(used["replay"], 15);
  EXPECT_EQ(used["last_used_age"], 5);
  const json& withdrawn = model["buckets"][1];
  EXPECT_EQ(withdrawn["bucket"], "4x16p");
  EXPECT_EQ(withdrawn["batches"], 0);
  EXPECT_EQ(withdrawn["in_ladder"], false);
  EXPECT_TRUE(withdrawn["last_used_age"].is_null());
}

TEST(StatusJson, KvPagesAddUpAndAreAbsentIfNoneAreKept) {
  ModelStats stats = ExampleStats(kNow);
  EXPECT_TRUE(ParsedModel({.stats = stats, .recent = {}})["kv"].is_null());
  stats.kv = {.pages = 100,
              .page_tokens = 16,
              .held = 30,
              .idle = 20,
              .evicted = 3,
              .preemptions = 2,
              .prefix_tokens = 50,
              .reused_tokens = 40};
  stats.kv.drafts[static_cast<int>(DraftKind::kNgram)] = {.drafted = 9, .accepted = 4};
  stats.kv.drafts[static_cast<int>(DraftKind::kPrediction)] = {.drafted = 5, .accepted = 5};
  const json sources = {{"ngram", {{"drafted", 9}, {"accepted", 4}}},
                        {"prediction", {{"drafted", 5}, {"accepted", 5}}}};
  EXPECT_EQ(ParsedModel({.stats = stats, .recent = {}})["kv"], json({{"pages", 100},
                                                                     {"page_tokens", 16},
                                                                     {"held", 30},
                                                                     {"idle", 20},
                                                                     {"free", 50},
                                                                     {"evicted", 3},
                                                                     {"preemptions", 2},
                                                                     {"prefix_tokens", 50},
                                                                     {"reused_tokens", 40},
                                                                     {"drafted_tokens", 14},
                                                                     {"accepted_tokens", 9},
                                                                     {"draft_sources", sources}}));
}

TEST(StatusJson, DecisionsHaveBucketTokensAndReasons) {
  BatchTrace batch{};
  batch.bucket = {.tokens = 64, .sequences = 32};
  batch.useful_tokens = 50;
  batch.sequences = 7;
  batch.trigger = Trigger::kDeadline;
  batch.lookup = Lookup::kMissGuard;
  batch.start = kNow - seconds(2);
  batch.replay = milliseconds(250);
  const json model = ParsedModel({.stats = ExampleStats(kNow), .recent = {.batches = {batch}}});
  ASSERT_EQ(model["decisions"].size(), 1u);
  EXPECT_EQ(model["decisions"][0], json({{"age", 2.0},
                                         {"bucket", "64x32"},
                                         {"capacity", 64},
                                         {"tokens", 50},
                                         {"sequences", 7},
                                         {"trigger", "deadline"},
                                         {"lookup", "guard"},
                                         {"replay", 0.25}}));
}

TEST(StatusJson, LatencyQuantilesAreNullWithoutSamples) {
  RecentActivity::View recent;
  EXPECT_TRUE(
      ParsedModel({.stats = ExampleStats(kNow), .recent = recent})["latency"]["total"].is_null());
  for (int i = 1; i <= 100; ++i) {
    recent.requests.push_back({.total = static_cast<double>(i), .queue = i / 10.0});
  }
  recent.requests[0].first_token = 5;
  const json latency = ParsedModel({.stats = ExampleStats(kNow), .recent = recent})["latency"];
  EXPECT_EQ(latency["total"],
            json({{"requests", 100}, {"p50", 50.0}, {"p90", 90.0}, {"p99", 99.0}}));
  EXPECT_EQ(latency["first_token"]["requests"], 1);
  EXPECT_EQ(latency["first_token"]["p50"], 5);
  EXPECT_TRUE(latency["inter_token"].is_null());
}

TEST(StatusJson, DescribesTheLatestReview) {
  EXPECT_TRUE(ParsedModel({.stats = ExampleStats(kNow), .recent = {}})["review"].is_null());
  RecentActivity::Review review;
  review.at = kNow - seconds(9);
  review.report.changed = true;
  review.report.reason = "why";
  review.report.diff.added = {{.tokens = 16, .sequences = 8}};
  review.report.bucket_fill_after = 0.9;
  const json told =
      ParsedModel({.stats = ExampleStats(kNow),
                   .recent = {.batches = {}, .requests = {}, .review = review}})["review"];
  EXPECT_EQ(told["age"], 9);
  EXPECT_EQ(told["adopted"], true);
  EXPECT_EQ(told["reason"], "why");
  EXPECT_EQ(told["added"], json({"16x8"}));
  EXPECT_EQ(told["removed"], json::array());
  EXPECT_EQ(told["bucket_fill_after"], 0.9);
}

TEST(StatusJson, TheHistoryHasEachLadderOnce) {
  const auto ladder = std::make_shared<const std::vector<Bucket>>(
      std::vector<Bucket>{Bucket::Padded(1, 8), Bucket::Padded(2, 8), Bucket::Padded(1, 16)});
  std::vector<HistoryStretch> history(3);
  for (HistoryStretch& stretch : history) stretch.ladder = ladder;
  history[2].ladder = std::make_shared<const std::vector<Bucket>>(
      std::vector<Bucket>{{.tokens = 64, .sequences = 4}});
  history[1].begin = kNow - seconds(90);
  history[1].end = kNow - seconds(30);
  history[1].length_p90 = 12;
  const json told =
      ParsedModel({.stats = ExampleStats(kNow), .recent = {}, .history = history})["history"];
  EXPECT_EQ(told["ladders"], json({{8, 16}, {64}}));
  EXPECT_EQ(told["stretches"][1]["ladder"], 0);
  EXPECT_EQ(told["stretches"][2]["ladder"], 1);
  EXPECT_EQ(told["stretches"][1]["begin"], 90);
  EXPECT_EQ(told["stretches"][1]["end"], 30);
  EXPECT_EQ(told["stretches"][1]["lengths"], json({0, 12, 0}));
}

TEST(StatusJson, HostileNamesAreEscaped) {
  for (const char* name : {"</script><script>alert(1)</script>", "\"},{\"a\":\"", "\\\n\x01",
                           "caf\xc3\xa9", "\xff\xfe", "\xe2\x80\xa8"}) {
    const ModelStatus model{.stats = ExampleStats(kNow, name), .recent = {}};
    const std::string text = StatusJson({}, {&model, 1}, kNow);
    EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; }))
        << text;
    const json parsed = json::parse(text)["models"];
    ASSERT_EQ(parsed.size(), 1u) << text;
    EXPECT_EQ(parsed[0]["version"], 3);
    if (name[0] != '\xff') {
      EXPECT_EQ(parsed[0]["name"], name);
    }
  }
}

TEST(StatusJson, HistogramsHaveAtMost256Sizes) {
  ModelStats stats = ExampleStats(kNow);
  for (int i = 1; i <= 5000; ++i) stats.traffic.batch_tokens.push_back({i, 1});
  const json model = ParsedModel({.stats = stats, .recent = {}});
  EXPECT_EQ(model["batch_tokens"].size(), kMaxStatusSizes);
  EXPECT_EQ(model["batch_tokens"].back()[0], 5000);
}

}  // namespace
}  // namespace sluice
