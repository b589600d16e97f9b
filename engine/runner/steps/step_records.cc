#include "engine/runner/steps/step_records.h"

#include <memory>
#include <span>
#include <utility>

namespace sluice {

StepRecords::StepRecords(const Model* model, int32_t row_multiple, Observer* observer,
                         const RecentWaits* waits)
    : model_(model), row_multiple_(row_multiple), observer_(observer), waits_(waits) {}

void StepRecords::RecordOutcome(const absl::Status& status, bool split) {
  if (status.ok()) {
    if (std::exchange(failed_steps_, 0) > 0) observer_->OnStepsRecovered(*model_);
    return;
  }
  if (!split) ++failed_steps_;
  observer_->OnStepFailed(*model_, status, failed_steps_);
}

void StepRecords::RecordStep(const InFlightStep& step) {
  const StepTiming& timing = step.timing;
  const std::span<RequestRow* const> rows = step.running.rows;
  const std::shared_ptr<const StepCompany> company = company_.Of(rows);
  for (size_t i = 0; i < rows.size();) {
    ActiveRequest* const request = rows[i]->owner;
    ExplainedStep own{.step = step.number,
                      .start = timing.begin,
                      .replay = timing.end - timing.begin,
                      .last_step = step.number,
                      .longest = timing.end - timing.begin,
                      .company = company,
                      .bucket = timing.bucket(),
                      .batch = step.running.size,
                      .trigger = step.decision.trigger,
                      .lookup = timing.lookup};
    bool wanted = false;
    for (; i < rows.size() && rows[i]->owner == request; ++i) {
      if (rows[i]->is_void != RequestRow::Void::kNo) continue;
      wanted = true;
      own.own_tokens += step.slot->tokens_of(i);
    }
    if (!wanted) continue;
    RequestTrace& trace = request->trace;
    if (trace.steps++ == 0) trace.first_run = timing.begin;
    request->history.AddWaits(*waits_, trace.queued);
    trace.bucket_tokens = timing.bucket().tokens;
    trace.compute += own.replay;
    request->history.Add(own);
  }
}

BatchTrace StepRecords::TraceOf(const InFlightStep& step) const {
  const StepTiming& timing = step.timing;
  const std::span<RequestRow* const> rows = step.running.rows;
  int64_t useful = step.slot->useful_tokens();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i]->is_void != RequestRow::Void::kNo) useful -= step.slot->tokens_of(i);
  }
  const int64_t computed = step.slot->computed_tokens();
  return {.model = model_,
          .bucket = timing.bucket(),
          .useful_tokens = useful,
          .computed_tokens = (computed + row_multiple_ - 1) / row_multiple_ * row_multiple_,
          .sequences = step.running.size.sequences,
          .sampled_rows = timing.shape.sampled_rows,
          .trigger = step.decision.trigger,
          .lookup = timing.lookup,
          .start = timing.begin,
          .form = timing.started - step.decided,
          .replay = timing.end - timing.begin,
          .deliver = nanoseconds(0)};
}

}  // namespace sluice
