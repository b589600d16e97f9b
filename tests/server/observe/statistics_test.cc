#include "server/observe/statistics.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/server/protocol/messages.h"
#include "tests/support/request_spec.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;

TEST(StatisticsTest, ThePartsOfASuccessfulRequestAddUp) {
  Statistics statistics;
  Request request;
  Mutable(request.spec).model = testing::TextModel();
  Mutable(request.spec).lengths = {1, 1, 1};
  RequestTrace trace;
  trace.received = MonoTime(std::chrono::hours(1));
  trace.queued = trace.received + milliseconds(1);
  trace.first_run = trace.received + milliseconds(4);
  trace.done = trace.received + milliseconds(20);
  trace.compute = milliseconds(9);
  statistics.OnRequestDone(request, absl::OkStatus(), trace);
  statistics.OnRequestDone(request, absl::OkStatus(), trace);
  statistics.OnRequestDone(request, absl::CancelledError(""), trace);

  ModelStats stats;
  stats.model = request.spec->model;
  stats.weight_bytes = 11;
  const inference::ModelStatistics told = statistics.Describe(stats);
  EXPECT_EQ(told.name(), "text");
  EXPECT_EQ(told.version(), "1");
  EXPECT_EQ(told.inference_count(), 6u) << "rows";
  const inference::InferStatistics& all = told.inference_stats();
  EXPECT_EQ(all.success().count(), 2u);
  EXPECT_EQ(all.success().ns(), 40'000'000u);
  EXPECT_EQ(all.fail().count(), 1u);
  EXPECT_EQ(all.queue().ns(), 6'000'000u);
  EXPECT_EQ(all.compute_infer().ns(), 18'000'000u);
  EXPECT_EQ(all.queue().count(), 2u);
  EXPECT_EQ(all.compute_input().ns() + all.queue().ns() + all.compute_infer().ns() +
                all.compute_output().ns(),
            all.success().ns());
  EXPECT_EQ(told.memory_usage(0).type(), "weights");
  EXPECT_EQ(told.memory_usage(0).byte_size(), 11u);
}

TEST(StatisticsTest, CountsBatchesBySize) {
  Statistics statistics;
  const auto model = testing::TextModel();
  BatchTrace batch{};
  batch.model = model.get();
  batch.form = milliseconds(1);
  batch.replay = milliseconds(2);
  batch.deliver = milliseconds(3);
  for (int32_t sequences : {5, 2, 5}) {
    batch.sequences = sequences;
    statistics.OnBatch(batch);
  }
  ModelStats stats;
  stats.model = model;
  const inference::ModelStatistics told = statistics.Describe(stats);
  EXPECT_EQ(told.execution_count(), 3u);
  EXPECT_GT(told.last_inference(), 0u);
  ASSERT_EQ(told.batch_stats_size(), 2);
  EXPECT_EQ(told.batch_stats(0).batch_size(), 2u);
  EXPECT_EQ(told.batch_stats(1).batch_size(), 5u);
  EXPECT_EQ(told.batch_stats(1).compute_infer().count(), 2u);
  EXPECT_EQ(told.batch_stats(1).compute_infer().ns(), 4'000'000u);
  EXPECT_EQ(told.batch_stats(1).compute_output().ns(), 6'000'000u);
}

}  // namespace
}  // namespace sluice
