#include "engine/runner/steps/step_pipeline.h"

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
  int batches = 0;  // batches reported to the observer
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
  InFlightStep* const step = parts.Decide();
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
  EXPECT_TRUE(parts.MayDecide());
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
    {.name = "OnlyTheRowWithoutMemoryFails",
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

// Launches a step and the next one; then finishes and delivers the first.
void LaunchTwoAndFinishOne(RunnerParts* parts) {
  ASSERT_TRUE(parts->pipeline.Launch(parts->Decide()));
  ASSERT_TRUE(parts->MayDecide());
  InFlightStep* const next = parts->Decide();
  ASSERT_NE(next, nullptr);
  ASSERT_TRUE(parts->pipeline.Launch(next));
  EXPECT_FALSE(parts->MayDecide());  // both slots are taken
  ASSERT_TRUE(parts->pipeline.FinishOldest());
  if (parts->pipeline.has_undelivered()) parts->pipeline.DeliverFinished();
}

TEST(StepPipeline, AGeneratingRowIsAlsoInTheStepAhead) {
  RunnerParts parts(SmallOptions(), {.steps_ahead = 1});
  ASSERT_TRUE(parts.pipeline.runs_ahead());
  parts.Admit({{5, 6}}, 3);
  LaunchTwoAndFinishOne(&parts);
  EXPECT_EQ(parts.sink->tokens().size(), 1u);
  {
    MutexLock lock(&parts.state.mu);
    EXPECT_EQ(parts.state.queue().size(), 0);
    EXPECT_EQ(parts.state.requests.running_sequences(), 1);
  }
  InFlightStep* const last = parts.Decide();
  ASSERT_NE(last, nullptr);
  ASSERT_TRUE(parts.pipeline.Launch(last));
  EXPECT_FALSE(parts.MayDecide());
  ASSERT_TRUE(parts.pipeline.FinishOldest());
  parts.pipeline.DeliverFinished();
  EXPECT_EQ(parts.Decide(), nullptr) << "the third token ends the row";
  ASSERT_TRUE(parts.pipeline.FinishOldest());
  parts.pipeline.DeliverFinished();
  EXPECT_EQ(parts.sink->row_tokens(0), Greedy({5, 6}, 3));
  EXPECT_EQ(parts.TakeEnded().size(), 1u);
  EXPECT_EQ(parts.backend.batches().size(), 3u);
}

TEST(StepPipeline, TrimFreesTheBuffersOfAllSlots) {
  RunnerParts parts(SmallOptions(), {.steps_ahead = 1});
  Request request = RequestOf(parts.model, {{5, 6}}, 2);
  request.outputs |= kOutputDiagnostics;
  parts.Admit(std::move(request));
  LaunchTwoAndFinishOne(&parts);
  ASSERT_TRUE(parts.pipeline.FinishOldest());
  parts.pipeline.DeliverFinished();
  for (const auto& slot : parts.prepared.slots) EXPECT_GT(slot->buffer_bytes(), 0);
  parts.pipeline.Trim();
  EXPECT_LT(parts.pipeline.trim_at(), MonoTime::max());
  parts.pipeline.Trim();
  EXPECT_EQ(parts.pipeline.trim_at(), MonoTime::max());
  for (const auto& slot : parts.prepared.slots) EXPECT_EQ(slot->buffer_bytes(), 0);
}

TEST(StepPipeline, NoStepAheadIfADrawDependsOnTheLastToken) {
  RunnerParts parts(SmallOptions(), {.steps_ahead = 1});
  Request request = RequestOf(parts.model, {{5, 6}}, 3);
  Mutable(request.spec).edits.frequency_penalty = 1;
  parts.Admit(std::move(request));
  ASSERT_TRUE(parts.pipeline.Launch(parts.Decide()));
  EXPECT_FALSE(parts.MayDecide());
  ASSERT_TRUE(parts.pipeline.FinishOldest());
  EXPECT_TRUE(parts.MayDecide());  // even before its results are delivered
}

// The row ends with the first step, but only the host sees this. Its result in the second step is
// dropped.
TEST(StepPipeline, ARowThatEndedIsDroppedFromTheStepAhead) {
  RunnerParts parts(SmallOptions(), {.steps_ahead = 1});
  Request request = RequestOf(parts.model, {{5, 6}}, 9);
  Mutable(request.spec).stop.ids = {Greedy({5, 6}, 1)[0]};
  parts.Admit(std::move(request));
  const std::shared_ptr<RecordingSink> stopped = parts.sink;
  parts.Admit({{7, 8}}, 9);
  LaunchTwoAndFinishOne(&parts);
  EXPECT_TRUE(parts.TakeEnded().empty()) << "the second step still writes to its pages";
  InFlightStep* const third = parts.Decide();
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(third->rows.size(), 1u);
  ASSERT_TRUE(parts.pipeline.Launch(third));
  ASSERT_TRUE(parts.pipeline.FinishOldest());
  parts.pipeline.DeliverFinished();
  EXPECT_EQ(parts.TakeEnded().size(), 1u);
  EXPECT_TRUE(stopped->tokens().empty());
  EXPECT_EQ(parts.sink->row_tokens(0), Greedy({7, 8}, 2));
  const std::vector<BatchTrace> traces = parts.observer.batches();
  ASSERT_EQ(traces.size(), 2u);
  EXPECT_EQ(traces[1].useful_tokens, 1) << "of two";
}

std::vector<size_t> SequencesOfSteps(const RunnerParts& parts) {
  std::vector<size_t> sequences;
  for (const RecordedBatch& batch : parts.backend.batches()) {
    sequences.push_back(batch.sequences.size());
  }
  return sequences;
}

void RunToTheEnd(RunnerParts* parts) {
  while (true) {
    if (parts->pipeline.has_undelivered()) parts->pipeline.DeliverFinished();
    InFlightStep* const step = parts->MayDecide() ? parts->Decide() : nullptr;
    if (step != nullptr) {
      ASSERT_TRUE(parts->pipeline.Launch(step));
    } else if (parts->pipeline.has_step_under_way()) {
      ASSERT_TRUE(parts->pipeline.FinishOldest());
    } else {
      break;
    }
  }
}

// Generating rows, each of its own request, on a device where one batch fails for lack of memory.
class GeneratingRows {
 public:
  // `failing_batch` is counted from 0.
  GeneratingRows(RunnerParts* parts, int32_t max_tokens, size_t failing_batch)
      : parts_(parts), max_tokens_(max_tokens) {
    parts_->backend.OnReplay([this, failing_batch](const RecordedBatch&) {
      return batches_++ == failing_batch ? absl::ResourceExhaustedError("no memory")
                                         : absl::OkStatus();
    });
  }

  void Admit() {
    parts_->Admit({{Name(sinks_.size()), 6}}, max_tokens_);
    sinks_.push_back(parts_->sink);
  }

  // Expects that all requests have the same answers as by themselves and that nothing is left of
  // them.
  void ExpectAnswered() {
    for (size_t i = 0; i < sinks_.size(); ++i) {
      EXPECT_EQ(sinks_[i]->row_tokens(0), Greedy({Name(i), 6}, max_tokens_)) << i;
    }
    EXPECT_EQ(parts_->TakeEnded().size(), sinks_.size());
    MutexLock lock(&parts_->state.mu);
    EXPECT_EQ(parts_->state.requests.running_sequences(), 0);
    EXPECT_EQ(parts_->state.requests.remaining_tokens(), 0);
  }

 private:
  static int32_t Name(size_t i) { return static_cast<int32_t>(i) + 1; }

  RunnerParts* const parts_;
  const int32_t max_tokens_;
  size_t batches_ = 0;
  std::vector<std::shared_ptr<RecordingSink>> sinks_;
};

struct MemoryFailureRow {
  const char* name;
  size_t failing_batch;                // counted from 0
  std::vector<size_t> step_sequences;  // of the batches that run
};

class MemoryFailureTable : public TableTest<MemoryFailureRow> {};

// Two rows generate, and a third one joins them in the second step.
TEST_P(MemoryFailureTable, StepsRunAgainWithTheSameResults) {
  RunnerParts parts(SmallOptions(), {.steps_ahead = 1});
  GeneratingRows rows(&parts, /*max_tokens=*/4, row().failing_batch);
  rows.Admit();
  rows.Admit();
  ASSERT_TRUE(parts.pipeline.Launch(parts.Decide()));
  rows.Admit();
  RunToTheEnd(&parts);
  EXPECT_EQ(SequencesOfSteps(parts), row().step_sequences);
  rows.ExpectAnswered();
}

const MemoryFailureRow kMemoryFailures[] = {
    {.name = "TheFirstStep", .failing_batch = 0, .step_sequences = {2, 3, 1, 1, 3, 3, 3}},
    {.name = "TheStepAhead", .failing_batch = 1, .step_sequences = {2, 3, 3, 1, 2, 3, 3, 1}},
};
SLUICE_TABLE(MemoryFailureTable, kMemoryFailures);

// Withdraws all plans except the plan of this bucket.
void WithdrawAllBut(RunnerParts* parts, const Bucket& kept) {
  ASSERT_TRUE(parts->prepared.plans->Prepare(kept).ok());
  for (const Bucket& bucket : parts->prepared.ladder->buckets()) {
    if (bucket != kept) parts->prepared.plans->Withdraw(bucket);
  }
}

// One sequence of the maximum width fills a step.
TEST(StepPipeline, AStepThatNoBucketOfTheNewLadderFitsRunsInParts) {
  EngineOptions options = SmallOptions();
  options.batch.policy = PolicyKind::kPaddedBuckets;
  RunnerParts parts(options);
  for (int32_t i = 0; i < 4; ++i) parts.Admit({{5 + i, 6 + i}});
  InFlightStep* const step = parts.Decide();
  ASSERT_NE(step, nullptr);
  ASSERT_EQ(step->rows.size(), 4u);
  const Bucket widest = parts.prepared.ladder->largest();
  ASSERT_LT(widest.sequences, 2);
  WithdrawAllBut(&parts, widest);
  {
    MutexLock lock(&parts.state.mu);
    parts.state.scheduler.SetLadder(std::make_shared<const Ladder>(std::vector<Bucket>{widest}));
  }
  ASSERT_TRUE(parts.pipeline.Launch(step));
  while (parts.pipeline.has_step_under_way()) ASSERT_TRUE(parts.pipeline.FinishOldest());
  if (parts.pipeline.has_undelivered()) parts.pipeline.DeliverFinished();
  EXPECT_EQ(SequencesOfSteps(parts), (std::vector<size_t>{1, 1, 1, 1}));
  const RequestTable::Requests ended = parts.TakeEnded();
  ASSERT_EQ(ended.size(), 4u);
  for (const auto& request : ended) EXPECT_TRUE(request->status.ok()) << request->status;
}

// The rows of the first step, which are also in the second, run again before it.
TEST(StepPipeline, RowsThatRunAgainLeaveAStepWithoutAPlan) {
  RunnerParts parts(SmallOptions(), {.steps_ahead = 1});
  GeneratingRows rows(&parts, /*max_tokens=*/2, /*failing_batch=*/0);
  rows.Admit();
  rows.Admit();
  ASSERT_TRUE(parts.pipeline.Launch(parts.Decide()));
  rows.Admit();
  InFlightStep* const second = parts.Decide();
  ASSERT_NE(second, nullptr);
  ASSERT_EQ(second->rows.size(), 3u);
  WithdrawAllBut(&parts, {.tokens = 8, .sequences = 2});
  ASSERT_TRUE(parts.pipeline.Launch(second));
  EXPECT_EQ(SequencesOfSteps(parts), (std::vector<size_t>{2, 1, 1, 1}));
  RunToTheEnd(&parts);
  rows.ExpectAnswered();
}

TEST(StepPipeline, AStepWhoseRowsEndAllowsAStepAhead) {
  RunnerParts parts(SmallOptions(), {.steps_ahead = 1});
  for (int32_t i = 0; i < 8; ++i) parts.Admit({{5 + i, 6}});
  ASSERT_TRUE(parts.pipeline.Launch(parts.Decide()));
  ASSERT_TRUE(parts.MayDecide());
  ASSERT_TRUE(parts.pipeline.Launch(parts.Decide()));
  EXPECT_FALSE(parts.MayDecide());  // both slots are taken
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
