#include "engine/runner/step_pipeline.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/runner_parts.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

// A step of four rows, each of its own request, on a device that may fail; and the expected
// outcome.
struct StepPipelineRow {
  const char* name;
  absl::Status device_error = absl::OkStatus();  // if ok, no step fails
  // The error affects steps of at least this many sequences.
  size_t from_sequences = 1;
  std::vector<size_t> steps;  // sequences of each replay, in order
  absl::StatusCode code = absl::StatusCode::kOk;
  int batches = 0;  // batches that the observer hears of
};
class StepPipelineTable : public TableTest<StepPipelineRow> {};

TEST_P(StepPipelineTable, RunsTheStepAndEndsItsRequests) {
  RunnerParts parts;
  std::vector<size_t> steps;
  parts.backend.OnReplay([&](const RecordedBatch& batch) {
    steps.push_back(batch.sequences.size());
    return batch.sequences.size() >= row().from_sequences ? row().device_error : absl::OkStatus();
  });
  for (int32_t i = 0; i < 4; ++i) parts.Admit({{5 + i, 6 + i}});
  StepPipeline::InFlightStep* const step = parts.Decide();
  ASSERT_NE(step, nullptr);
  ASSERT_TRUE(parts.pipeline.Launch(step));
  while (parts.pipeline.has_step_under_way()) ASSERT_TRUE(parts.pipeline.FinishOldest());
  if (parts.pipeline.has_undelivered()) parts.pipeline.DeliverFinished();

  EXPECT_EQ(steps, row().steps);
  EXPECT_EQ(parts.observer.batches().size(), static_cast<size_t>(row().batches));
  const RequestTable::Requests ended = parts.TakeEnded();
  ASSERT_EQ(ended.size(), 4u);
  for (const auto& request : ended) {
    EXPECT_EQ(request->status.code(), row().code) << request->status;
    EXPECT_EQ(request->trace.steps, 1);
    EXPECT_EQ(request->trace.generated_tokens, row().code == absl::StatusCode::kOk ? 1 : 0);
  }
  EXPECT_TRUE(parts.pipeline.MayDecide());
}

const StepPipelineRow kStepPipelineRows[] = {
    {.name = "AStepThatSucceedsEndsItsRequests", .steps = {4}, .batches = 1},
    {.name = "AStepWithoutMemoryRunsInHalves",
     .device_error = absl::ResourceExhaustedError("out of memory"),
     .from_sequences = 3,
     .steps = {4, 2, 2},
     .batches = 2},
    {.name = "HalvesWithoutMemoryAreHalvedAgain",
     .device_error = absl::ResourceExhaustedError("out of memory"),
     .from_sequences = 2,
     .steps = {4, 2, 1, 1, 2, 1, 1},
     .batches = 4},
    {.name = "ARowWithoutMemoryAloneFails",
     .device_error = absl::ResourceExhaustedError("out of memory"),
     .steps = {4, 2, 1, 1, 2, 1, 1},
     .code = absl::StatusCode::kResourceExhausted},
    {.name = "AnInternalErrorFailsTheStep",
     .device_error = absl::InternalError("broken"),
     .steps = {4},
     .code = absl::StatusCode::kInternal},
    {.name = "ALostDeviceIsUnavailable",
     .device_error = absl::UnavailableError("lost"),
     .steps = {4},
     .code = absl::StatusCode::kUnavailable},
};
SLUICE_TABLE(StepPipelineTable, kStepPipelineRows);

TEST(StepPipeline, ARowThatGeneratesReturnsAndAllowsNoStepAhead) {
  RunnerParts parts(SmallOptions(), {.steps_ahead = 1});
  ASSERT_TRUE(parts.pipeline.runs_ahead());
  parts.Admit({{5, 6}}, 3);
  ASSERT_TRUE(parts.pipeline.Launch(parts.Decide()));
  EXPECT_FALSE(parts.pipeline.MayDecide());  // the next step depends on its next token
  ASSERT_TRUE(parts.pipeline.FinishOldest());
  EXPECT_TRUE(parts.pipeline.MayDecide());  // even before its results are delivered
  EXPECT_TRUE(parts.pipeline.has_undelivered());
  parts.pipeline.DeliverFinished();
  EXPECT_EQ(parts.sink->tokens().size(), 1u);
  MutexLock lock(&parts.state.mu);
  EXPECT_EQ(parts.state.queue().size(), 1);
}

TEST(StepPipeline, AStepWhoseRowsEndAllowsOneAhead) {
  RunnerParts parts(SmallOptions(), {.steps_ahead = 1});
  for (int32_t i = 0; i < 8; ++i) parts.Admit({{5 + i, 6}});
  ASSERT_TRUE(parts.pipeline.Launch(parts.Decide()));
  ASSERT_TRUE(parts.pipeline.MayDecide());
  ASSERT_TRUE(parts.pipeline.Launch(parts.Decide()));
  EXPECT_FALSE(parts.pipeline.MayDecide());  // both slots are taken
  EXPECT_EQ(parts.backend.started_ahead(), 1);
  ASSERT_TRUE(parts.pipeline.FinishOldest());
  parts.pipeline.DeliverFinished();
  ASSERT_TRUE(parts.pipeline.FinishOldest());
  parts.pipeline.DeliverFinished();
  EXPECT_EQ(parts.TakeEnded().size(), 8u);
}

TEST(StepPipeline, AnAbandonedStepIsNotTouchedAgain) {
  RunnerParts parts;
  parts.backend.OnReplay([&](const RecordedBatch&) {
    EXPECT_TRUE(parts.heartbeat.Abandon(parts.heartbeat.Read().serial));
    return absl::OkStatus();
  });
  parts.Admit({{5, 6}});
  ASSERT_TRUE(parts.pipeline.Launch(parts.Decide()));
  EXPECT_FALSE(parts.pipeline.FinishOldest());
  EXPECT_TRUE(parts.TakeEnded().empty());
  EXPECT_EQ(parts.sink->done_calls(), 0);
}

TEST(StepPipeline, ADeadlineThatPassesDuringTheStepDropsTheResult) {
  RunnerParts parts;
  parts.backend.OnReplay([&](const RecordedBatch&) {
    parts.clock.Advance(std::chrono::seconds(10));
    return absl::OkStatus();
  });
  parts.Admit({{5, 6}}, 1, parts.clock.Now() + std::chrono::seconds(5));
  const std::shared_ptr<RecordingSink> late = parts.sink;
  parts.Admit({{7, 8}});
  ASSERT_TRUE(parts.pipeline.Launch(parts.Decide()));
  ASSERT_TRUE(parts.pipeline.FinishOldest());
  parts.pipeline.DeliverFinished();
  EXPECT_TRUE(late->tokens().empty());
  EXPECT_EQ(parts.sink->tokens().size(), 1u);
  int expired = 0;
  for (const auto& request : parts.TakeEnded()) {
    expired += absl::IsDeadlineExceeded(request->status) ? 1 : 0;
  }
  EXPECT_EQ(expired, 1);
}

}  // namespace
}  // namespace sluice
