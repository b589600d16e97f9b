#include "server/observe/engine_metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/observe/metrics.h"
#include "tests/server/observe/scrape.h"
#include "tests/server/scripted_engine.h"

namespace sluice {
namespace {

using testing::SumOf;

TEST(EngineMetricsTest, CollectsKvPagesAndSequences) {
  testing::ScriptedEngine engine;
  ModelStats stats;
  stats.waiting_sequences = 5;
  stats.running_sequences = 7;
  stats.kv = {.pages = 100,
              .page_tokens = 16,
              .held = 30,
              .idle = 20,
              .evicted = 4,
              .preemptions = 3,
              .prefix_tokens = 1000,
              .reused_tokens = 640};
  stats.kv.drafts[static_cast<int>(DraftKind::kNgram)] = {.drafted = 50, .accepted = 20};
  stats.kv.drafts[static_cast<int>(DraftKind::kForced)] = {.drafted = 7, .accepted = 7};
  stats.kv.drafts[static_cast<int>(DraftKind::kModel)] = {.drafted = 40, .accepted = 31};
  stats.attention = {AttentionVariant::Kind::kSplit, 4};
  engine.SetStats(stats);
  const auto samples = testing::ParseSamples(
      Metrics("cpu", "1.2.3").Render(EngineMetrics(engine, /*log_dropped=*/9)));
  const std::map<std::pair<std::string, std::string>, double> expected = {
      {{"sluice_sequences_waiting", ""}, 5},
      {{"sluice_sequences_running", ""}, 7},
      {{"sluice_kv_pages", "state=\"held\""}, 30},
      {{"sluice_kv_pages", "state=\"idle\""}, 20},
      {{"sluice_kv_pages", "state=\"free\""}, 50},
      {{"sluice_kv_page_tokens", ""}, 16},
      {{"sluice_kv_pages_evicted_total", ""}, 4},
      {{"sluice_preemptions_total", ""}, 3},
      {{"sluice_prefix_tokens_total", "result=\"hit\""}, 640},
      {{"sluice_prefix_tokens_total", "result=\"miss\""}, 360},
      {{"sluice_draft_tokens_total", "source=\"ngram\""}, 50},
      {{"sluice_draft_tokens_total", "source=\"forced\""}, 7},
      {{"sluice_draft_tokens_total", "result=\"accepted\",source=\"model\""}, 31},
      {{"sluice_draft_tokens_total", "result=\"rejected\",source=\"model\""}, 9},
      {{"sluice_draft_tokens_total", "result=\"accepted\""}, 58},
      {{"sluice_draft_tokens_total", "result=\"rejected\""}, 39},
      {{"sluice_log_dropped_total", ""}, 9},
      {{"sluice_attention_info", "variant=\"split:4\""}, 1},
      {{"sluice_backend_info", "device=\"cpu\",profile=\"exact\""}, 1},
  };
  for (const auto& [series, value] : expected) {
    EXPECT_EQ(SumOf(samples, series.first, series.second), value) << series.first << series.second;
  }
}

TEST(EngineMetricsTest, CollectsTheQueueTheLadderAndTheTraffic) {
  testing::ScriptedEngine engine;
  ModelStats stats;
  stats.queued_tokens = 1;
  stats.queued_bytes = 2;
  stats.oldest_age = std::chrono::seconds(3);
  stats.estimated_drain = std::chrono::seconds(4);
  stats.plan_memory_bytes = 5;
  stats.time_to_ready = std::chrono::seconds(6);
  stats.steps = 7;
  stats.ladder_changes = {
      .added = 8, .removed = 9, .merged = 10, .split = 11, .evicted = 12, .reviews = 13};
  stats.traffic.shape_entropy_bits = 14;
  stats.traffic.length_entropy_bits = 15;
  stats.traffic.arrivals = {.sequences_per_second = 16, .tokens_per_second = 17};
  stats.buckets = {{.bucket = {.tokens = 64, .sequences = 8},
                    .ready = true,
                    .batches = 1,
                    .memory_bytes = 18,
                    .activation_bytes = 19,
                    .cost_seconds = 20}};
  engine.SetStats(stats);
  const auto samples = testing::ParseSamples(
      Metrics("cpu", "1.2.3").Render(EngineMetrics(engine, /*log_dropped=*/0)));
  const std::map<std::pair<std::string, std::string>, double> expected = {
      {{"sluice_queued_tokens", ""}, 1},
      {{"sluice_queue_bytes", ""}, 2},
      {{"sluice_queue_oldest_age_seconds", ""}, 3},
      {{"sluice_estimated_drain_seconds", ""}, 4},
      {{"sluice_plan_memory_bytes", ""}, 5},
      {{"sluice_device_memory_bytes", "state=\"plans\""}, 5},
      {{"sluice_time_to_ready_seconds", ""}, 6},
      {{"sluice_engine_steps_total", ""}, 7},
      {{"sluice_ladder_changes_total", "kind=\"added\""}, 8},
      {{"sluice_ladder_changes_total", "kind=\"removed\""}, 9},
      {{"sluice_ladder_changes_total", "kind=\"merged\""}, 10},
      {{"sluice_ladder_changes_total", "kind=\"split\""}, 11},
      {{"sluice_ladder_evictions_total", ""}, 12},
      {{"sluice_ladder_reviews_total", ""}, 13},
      {{"sluice_shape_entropy_bits", ""}, 14},
      {{"sluice_length_entropy_bits", ""}, 15},
      {{"sluice_arrival_sequences_per_second", ""}, 16},
      {{"sluice_arrival_tokens_per_second", ""}, 17},
      {{"sluice_bucket_capacity_tokens", "bucket=\"64x8\""}, 64},
      {{"sluice_bucket_capacity_rows", "bucket=\"64x8\""}, 8},
      {{"sluice_bucket_memory_bytes", "bucket=\"64x8\""}, 18},
      {{"sluice_bucket_activation_bytes", "bucket=\"64x8\""}, 19},
      {{"sluice_bucket_cost_seconds", "bucket=\"64x8\""}, 20},
      {{"sluice_bucket_ready", "bucket=\"64x8\""}, 1},
  };
  for (const auto& [series, value] : expected) {
    EXPECT_EQ(SumOf(samples, series.first, series.second), value) << series.first << series.second;
  }
}

TEST(EngineMetricsTest, CollectsAdaptersAndListsThemForTheEndpointPicker) {
  testing::ScriptedEngine engine;
  ModelStats stats;
  engine.SetStats(stats);
  const auto scrape = [&] {
    return testing::ParseSamples(
        Metrics("cpu", "1.2.3").Render(EngineMetrics(engine, /*log_dropped=*/0)));
  };
  auto samples = scrape();
  for (const char* label :
       {"max_lora=\"0\"", "running_lora_adapters=\"\"", "waiting_lora_adapters=\"\""}) {
    EXPECT_GT(SumOf(samples, "sluice_lora_requests_info", label), 1e9)
        << label << ": a picker that finds no series takes the replica as broken";
  }
  EXPECT_EQ(SumOf(samples, "sluice_adapter_requests_total", ""), 0);
  stats.adapters = {.bytes = 90, .limit_bytes = 100, .known = 4, .capacity = 7};
  stats.adapters.named = {{"law", {.requests = 3, .tokens = 30, .loads = 2, .evictions = 1}, 40}};
  stats.adapters.others = {.counts = {.requests = 5, .loads = 6}, .bytes = 50};
  stats.adapters.loaded = {"law", "tax"};
  stats.adapters.waiting = {"art"};
  engine.SetStats(stats);
  samples = scrape();
  const std::map<std::pair<std::string, std::string>, double> expected = {
      {{"sluice_adapter_requests_total", "adapter=\"law\""}, 3},
      {{"sluice_adapter_tokens_total", "adapter=\"law\""}, 30},
      {{"sluice_adapter_loads_total", "adapter=\"law\""}, 2},
      {{"sluice_adapter_evictions_total", "adapter=\"law\""}, 1},
      {{"sluice_adapter_bytes", "adapter=\"law\""}, 40},
      {{"sluice_adapter_requests_total", "adapter=\"(other)\""}, 5},
      {{"sluice_adapter_loads_total", "adapter=\"(other)\""}, 6},
      {{"sluice_adapter_bytes", ""}, 90},
      {{"sluice_adapter_limit_bytes", ""}, 100},
      {{"sluice_device_memory_bytes", "state=\"adapters\""}, 90},
  };
  for (const auto& [series, value] : expected) {
    EXPECT_EQ(SumOf(samples, series.first, series.second), value) << series.first << series.second;
  }
  for (const char* label : {"max_lora=\"7\"", "running_lora_adapters=\"text:law,text:tax\"",
                            "waiting_lora_adapters=\"text:art\""}) {
    EXPECT_GT(SumOf(samples, "sluice_lora_requests_info", label), 1e9) << label;
  }
}

TEST(EngineMetricsTest, CollectsTheCountersOfEachBucketAndOfForgottenBuckets) {
  testing::ScriptedEngine engine;
  ModelStats stats;
  const auto used = [](Bucket bucket, int64_t scale) {
    BucketStats counts{.bucket = bucket,
                       .batches = 10 * scale,
                       .hits = 6 * scale,
                       .useful_tokens = 70 * scale,
                       .computed_tokens = 80 * scale,
                       .bucket_tokens = 90 * scale,
                       .sequences = 20 * scale,
                       .replay = scale * std::chrono::milliseconds(1500)};
    counts.misses[static_cast<int>(Lookup::kMissEvicted)] = 3 * scale;
    counts.misses[static_cast<int>(Lookup::kMissNotPrepared)] = scale;
    counts.replays[1] = 4 * scale;
    counts.replays.back() = 6 * scale;
    return counts;
  };
  stats.buckets = {used({.tokens = 64, .sequences = 8}, 1),
                   used({.tokens = 128, .sequences = 8}, 2)};
  stats.buckets[1].in_ladder = false;
  stats.forgotten_buckets = used({}, 3);
  stats.device_tokens_per_second = 1234;
  engine.SetStats(stats);
  const auto samples = testing::ParseSamples(
      Metrics("cpu", "1.2.3").Render(EngineMetrics(engine, /*log_dropped=*/0)));
  const std::pair<std::string, double> buckets[] = {{"64x8", 1}, {"128x8", 2}, {"other", 3}};
  for (const auto& [bucket, scale] : buckets) {
    const auto sum = [&](const std::string& name, const std::string& label) {
      return SumOf(samples, name, absl::StrCat("bucket=\"", bucket, "\",", label));
    };
    SCOPED_TRACE(bucket);
    EXPECT_EQ(sum("sluice_bucket_tokens_total", "device=\"cpu\",kind=\"useful\""), 70 * scale);
    EXPECT_EQ(sum("sluice_bucket_tokens_total", "device=\"cpu\",kind=\"computed\""), 80 * scale);
    EXPECT_EQ(sum("sluice_bucket_tokens_total", "device=\"cpu\",kind=\"capacity\""), 90 * scale);
    EXPECT_EQ(sum("sluice_bucket_batches_total", ""), 10 * scale);
    EXPECT_EQ(sum("sluice_bucket_sequences_total", ""), 20 * scale);
    EXPECT_EQ(sum("sluice_bucket_replay_seconds_count", ""), 10 * scale);
    EXPECT_EQ(sum("sluice_bucket_replay_seconds_sum", ""), 1.5 * scale);
  }
  EXPECT_EQ(SumOf(samples, "sluice_bucket_batches_total", "result=\"hit\""), 36);
  EXPECT_EQ(SumOf(samples, "sluice_bucket_batches_total", "reason=\"evicted\",result=\"miss\""),
            18);
  EXPECT_EQ(SumOf(samples, "sluice_bucket_replay_seconds_bucket", "le=\"0.00025\""), 0);
  EXPECT_EQ(SumOf(samples, "sluice_bucket_replay_seconds_bucket", "le=\"0.001\""), 24);
  EXPECT_EQ(SumOf(samples, "sluice_bucket_replay_seconds_bucket", "le=\"4.096\""), 24);
  EXPECT_EQ(SumOf(samples, "sluice_bucket_replay_seconds_bucket", "le=\"+Inf\""), 60);
  EXPECT_EQ(SumOf(samples, "sluice_device_busy_seconds_total"), 9);
  EXPECT_EQ(SumOf(samples, "sluice_device_tokens_per_second"), 1234);
  EXPECT_EQ(SumOf(samples, "sluice_bucket_capacity_tokens"), 64) << "only of the ladder";
}

// docs/metrics.md states this number.
TEST(EngineMetricsTest, ABucketHasTwentySeriesOfCounters) {
  testing::ScriptedEngine engine;
  ModelStats stats;
  stats.buckets = {{.bucket = {.tokens = 64, .sequences = 8}, .in_ladder = false}};
  engine.SetStats(stats);
  const auto samples = testing::ParseSamples(
      Metrics("cpu", "1.2.3").Render(EngineMetrics(engine, /*log_dropped=*/0)));
  EXPECT_EQ(std::ranges::count_if(
                samples, [](const auto& each) { return each.first.starts_with("sluice_bucket_"); }),
            20);
}

}  // namespace
}  // namespace sluice
