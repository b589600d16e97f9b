#include "server/observe/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/server/observe/scrape.h"
#include "tests/server/protocol/messages.h"
#include "tests/support/request_spec.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using testing::ParseSamples;
using testing::SumOf;

class MetricsTest : public ::testing::Test {
 protected:
  MetricsTest() {
    Mutable(request_.spec).model = model_;
    Mutable(request_.spec).lengths = {1, 1};
    trace_.received = MonoTime(std::chrono::hours(1));
    trace_.queued = trace_.received + milliseconds(1);
    trace_.first_run = trace_.received + milliseconds(3);
    trace_.first_token = trace_.received + milliseconds(7);
    trace_.done = trace_.received + milliseconds(15);
    trace_.compute = milliseconds(9);
    trace_.generated_tokens = 10;
  }

  std::map<std::string, double> Samples() { return ParseSamples(metrics_.Render({})); }
  double Sum(const std::string& name, const std::string& label = "") {
    return SumOf(Samples(), name, label);
  }

  const std::shared_ptr<const Model> model_ = testing::TextModel();
  Metrics metrics_{"cpu", "1.2.3"};
  Request request_;
  RequestTrace trace_;
};

TEST_F(MetricsTest, ASeriesIsRemovedSomeTimeAfterItsModel) {
  const auto count = [&] {
    metrics_.OnAdmitted(request_);
    metrics_.OnRequestDone(request_, absl::CancelledError(""), trace_);
    metrics_.OnRequestDone(request_, absl::DeadlineExceededError(""), trace_);
    metrics_.OnRejected("text", Reason::kMemory);
    metrics_.OnRejected("", Reason::kMalformed);
    metrics_.OnStepFailed(*model_, absl::InternalError(""), 1);
    metrics_.OnPlan({model_.get(), {}, /*ok=*/true, milliseconds(1), /*memory_bytes=*/1});
  };
  const auto retire = [&](bool served, int minute) {
    metrics_.Retire([=](std::string_view, int64_t) { return served; },
                    MonoTime(std::chrono::minutes(minute)), std::chrono::minutes(10));
  };
  const auto of_model = [&] {
    int series = 0;
    for (const auto& [name, value] : Samples()) series += name.find("model=\"text\"") != name.npos;
    return series;
  };
  count();
  const int all = of_model();
  EXPECT_GT(all, 20);
  retire(true, 0);
  retire(false, 60);
  retire(false, 69);
  EXPECT_EQ(of_model(), all);
  retire(false, 70);
  EXPECT_EQ(of_model(), 0);
  EXPECT_EQ(Sum("sluice_rejected_total"), 1) << "the refusal without a model";
  count();
  EXPECT_EQ(of_model(), all);
  EXPECT_EQ(Sum("sluice_admitted_total"), 1) << "it starts from zero";
}

TEST_F(MetricsTest, EndedRequestsAreCountedByCodeAndStage) {
  for (int i = 0; i < 6; ++i) metrics_.OnAdmitted(request_);
  metrics_.OnRequestDone(request_, absl::OkStatus(), trace_);
  metrics_.OnRequestDone(request_, absl::OkStatus(), trace_);
  metrics_.OnRequestDone(request_, absl::InternalError(""), trace_);
  metrics_.OnRequestDone(request_, absl::CancelledError(""), trace_);
  trace_.first_run = {};
  metrics_.OnRequestDone(request_, absl::CancelledError(""), trace_);
  metrics_.OnRequestDone(request_, absl::DeadlineExceededError(""), trace_);

  const auto samples = Samples();
  const std::string labels = "device=\"cpu\",model=\"text\",version=\"1\"}";
  EXPECT_EQ(samples.at("sluice_admitted_total{" + labels), 6);
  EXPECT_EQ(samples.at("sluice_requests_total{code=\"OK\"," + labels), 2);
  EXPECT_EQ(SumOf(samples, "sluice_requests_total", "code=\"INTERNAL\""), 1);
  EXPECT_EQ(SumOf(samples, "sluice_requests_total", "code=\"CANCELLED\""), 2);
  EXPECT_EQ(SumOf(samples, "sluice_requests_total"), SumOf(samples, "sluice_admitted_total"));
  EXPECT_EQ(SumOf(samples, "sluice_cancelled_total", "stage=\"run\""), 1);
  EXPECT_EQ(SumOf(samples, "sluice_cancelled_total", "stage=\"queue\""), 1);
  EXPECT_EQ(SumOf(samples, "sluice_deadline_missed_total", "stage=\"queue\""), 1);
}

TEST_F(MetricsTest, DurationsEqualTheTracesOfSuccessfulRequests) {
  metrics_.OnRequestDone(request_, absl::OkStatus(), trace_);
  metrics_.OnRequestDone(request_, absl::InternalError(""), trace_);
  EXPECT_EQ(Sum("sluice_request_duration_seconds_count"), 1);
  EXPECT_DOUBLE_EQ(Sum("sluice_request_duration_seconds_sum"), 0.015);
  EXPECT_DOUBLE_EQ(Sum("sluice_queue_duration_seconds_sum"), 0.002);
  EXPECT_DOUBLE_EQ(Sum("sluice_inference_duration_seconds_sum"), 0.009);
  EXPECT_DOUBLE_EQ(Sum("sluice_time_to_first_token_seconds_sum"), 0.007);
  // Two rows of five tokens have four gaps in the eight milliseconds after the first token.
  EXPECT_DOUBLE_EQ(Sum("sluice_inter_token_duration_seconds_sum"), 0.002);
  EXPECT_EQ(Sum("sluice_request_duration_seconds_bucket", "le=\"0.01\""), 0);
  EXPECT_EQ(Sum("sluice_request_duration_seconds_bucket", "le=\"0.025\""), 1);
}

TEST_F(MetricsTest, ScoringHasNoTokenTimes) {
  trace_.first_token = {};
  trace_.generated_tokens = 0;
  metrics_.OnRequestDone(request_, absl::OkStatus(), trace_);
  EXPECT_EQ(Sum("sluice_request_duration_seconds_count"), 1);
  EXPECT_EQ(Sum("sluice_time_to_first_token_seconds_count"), 0);
  EXPECT_EQ(Sum("sluice_inter_token_duration_seconds_count"), 0);
}

TEST_F(MetricsTest, CountsFailedWritesByFile) {
  EXPECT_EQ(Samples().count("sluice_file_write_errors_total{file=\"journal\"}"), 1)
      << "an increase from 0 is seen";
  metrics_.OnWriteFailed(WrittenFile::kJournal);
  metrics_.OnWriteFailed(WrittenFile::kLadder);
  metrics_.OnWriteFailed(WrittenFile::kLadder);
  EXPECT_EQ(Sum("sluice_file_write_errors_total", "file=\"journal\""), 1);
  EXPECT_EQ(Sum("sluice_file_write_errors_total", "file=\"ladder\""), 2);
}

TEST_F(MetricsTest, CountsLostLinesOfJournals) {
  EXPECT_EQ(Samples().count("sluice_journal_lines_dropped_total"), 1);
  for (const int64_t lines : {3, 4}) metrics_.OnJournalLinesLost(lines);
  EXPECT_EQ(Sum("sluice_journal_lines_dropped_total"), 7);
}

TEST_F(MetricsTest, CountsBatchesAndPlans) {
  BatchTrace batch{.model = model_.get(),
                   .bucket = {64, 8},
                   .useful_tokens = 40,
                   .computed_tokens = 48,
                   .sequences = 3,
                   .sampled_rows = 3,
                   .trigger = Trigger::kDelay,
                   .lookup = Lookup::kMissNotPrepared,
                   .start = {},
                   .form = milliseconds(1),
                   .replay = milliseconds(2),
                   .deliver = milliseconds(3)};
  metrics_.OnBatch(batch);
  batch.lookup = Lookup::kHit;
  metrics_.OnBatch(batch);
  metrics_.OnNoPlan(*model_, Lookup::kMissGuard);
  metrics_.OnPlan({.model = model_.get(),
                   .bucket = {64, 8},
                   .ok = false,
                   .duration = milliseconds(5),
                   .memory_bytes = 0});
  const auto samples = Samples();
  EXPECT_EQ(SumOf(samples, "sluice_tokens_total", "kind=\"useful\""), 80);
  EXPECT_EQ(SumOf(samples, "sluice_tokens_total", "kind=\"computed\""), 96);
  EXPECT_EQ(SumOf(samples, "sluice_tokens_total", "kind=\"bucket\""), 128);
  EXPECT_EQ(SumOf(samples, "sluice_batches_total", "trigger=\"delay\""), 2);
  EXPECT_EQ(SumOf(samples, "sluice_batches_total"), 2);
  EXPECT_EQ(SumOf(samples, "sluice_batch_rows_sum"), 6);
  EXPECT_EQ(SumOf(samples, "sluice_batch_tokens_sum"), 80);
  EXPECT_EQ(SumOf(samples, "sluice_plan_lookups_total", "result=\"hit\""), 1);
  EXPECT_EQ(SumOf(samples, "sluice_plan_lookups_total", "reason=\"not_prepared\""), 1);
  EXPECT_EQ(SumOf(samples, "sluice_plan_lookups_total", "reason=\"guard\""), 1);
  EXPECT_EQ(SumOf(samples, "sluice_plan_captures_total", "result=\"error\""), 1);
  EXPECT_DOUBLE_EQ(SumOf(samples, "sluice_plan_capture_seconds_sum"), 0.005);
  EXPECT_DOUBLE_EQ(SumOf(samples, "sluice_stage_duration_seconds_sum", "stage=\"deliver\""), 0.006);
}

TEST_F(MetricsTest, DiagnosticsAreMeansByLayerOfAllRequests) {
  auto model = std::make_shared<Model>();
  model->name = "deep";
  model->config.layers = 2;
  model->config.heads = 1;
  model->config.xsa.layers = {false, true};
  Reply reply;
  reply.xsa_positions = {1, 2};
  reply.xsa_cos_sim = {0, 3, 0, 0, 6, 9};
  reply.xsa_proj_frac = {0, 0.25f, 0, 0, 0.25f, 1};
  metrics_.OnDiagnostics(*model, reply);
  EXPECT_DOUBLE_EQ(Sum("sluice_xsa_cos_sim", "layer=\"1\""), 6);
  EXPECT_DOUBLE_EQ(Sum("sluice_xsa_proj_frac", "layer=\"1\""), 0.5);
  reply.xsa_positions = {1};
  reply.xsa_cos_sim = {0, 2};
  reply.xsa_proj_frac = {0, 0.5f};
  metrics_.OnDiagnostics(*model, reply);
  const auto samples = Samples();
  EXPECT_DOUBLE_EQ(SumOf(samples, "sluice_xsa_cos_sim", "layer=\"1\""), 5);
  EXPECT_EQ(SumOf(samples, "sluice_xsa_positions_total"), 4);
  EXPECT_EQ(SumOf(samples, "sluice_xsa_cos_sim", "layer=\"0\""), 0) << "a layer without XSA";
}

TEST_F(MetricsTest, EveryTriggerAndLookupHasASeries) {
  BatchTrace batch{};
  batch.model = model_.get();
  for (Trigger trigger :
       {Trigger::kFull, Trigger::kDelay, Trigger::kDeadline, Trigger::kIdle, Trigger::kDrain}) {
    batch.trigger = trigger;
    metrics_.OnBatch(batch);
    const std::string label = "trigger=\"" + std::string(NameOf(trigger)) + "\"";
    EXPECT_EQ(Sum("sluice_batches_total", label), 1) << label;
  }
  for (Lookup lookup : {Lookup::kMissNotPrepared, Lookup::kMissEvicted, Lookup::kMissOverCapacity,
                        Lookup::kMissGuard, Lookup::kMissMemory}) {
    batch.lookup = lookup;
    metrics_.OnBatch(batch);
    const std::string label = "reason=\"" + std::string(NameOf(lookup)) + "\"";
    EXPECT_EQ(Sum("sluice_plan_lookups_total", label), 1) << label;
  }
}

TEST_F(MetricsTest, RefusalsAreCountedByModelAndReason) {
  for (int i = 0; i < 3; ++i) metrics_.OnRejected("text", Reason::kQueueFull);
  for (int i = 0; i < 2; ++i) metrics_.OnRejected("text", Reason::kDraining);
  metrics_.OnRejected("other", Reason::kQueueFull);
  metrics_.OnRejected("", Reason::kMalformed);
  const auto samples = Samples();
  EXPECT_EQ(samples.at("sluice_rejected_total{model=\"text\",reason=\"queue_full\"}"), 3);
  EXPECT_EQ(samples.at("sluice_rejected_total{model=\"text\",reason=\"draining\"}"), 2);
  EXPECT_EQ(samples.at("sluice_rejected_total{model=\"other\",reason=\"queue_full\"}"), 1);
  EXPECT_EQ(samples.at("sluice_rejected_total{model=\"\",reason=\"malformed\"}"), 1);
}

TEST_F(MetricsTest, VersionsOfOneModelHaveSeparateSeries) {
  metrics_.OnAdmitted(request_);
  Mutable(request_.spec).model = testing::TextModel("text", 2);
  metrics_.OnAdmitted(request_);
  metrics_.OnAdmitted(request_);
  EXPECT_EQ(Sum("sluice_admitted_total", "version=\"1\""), 1);
  EXPECT_EQ(Sum("sluice_admitted_total", "version=\"2\""), 2);
}

TEST_F(MetricsTest, HasBuildInfo) { EXPECT_EQ(Sum("sluice_build_info", "version=\"1.2.3\""), 1); }

}  // namespace
}  // namespace sluice
