#include "server/observe/engine_metrics.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

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
      {{"sluice_log_dropped_total", ""}, 9},
      {{"sluice_attention_info", "variant=\"split:4\""}, 1},
      {{"sluice_backend_info", "device=\"cpu\",profile=\"exact\""}, 1},
  };
  for (const auto& [series, value] : expected) {
    EXPECT_EQ(SumOf(samples, series.first, series.second), value) << series.first << series.second;
  }
}

}  // namespace
}  // namespace sluice
