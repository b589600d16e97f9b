#include "engine/runner/steps/step_records.h"

#include <memory>
#include <span>
#include <utility>

namespace sluice {
namespace {

// Calls `add` with the name of each request, which is nullptr if it has no id.
template <typename Add>
void ForEachRequest(std::span<RequestRow* const> rows, Add add) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i == 0 || rows[i]->owner != rows[i - 1]->owner) add(rows[i]->owner->name);
  }
}

}  // namespace

StepRecords::StepRecords(const Model* model, ComputedRows rows, Observer* observer,
                         const RecentWaits* waits)
    : model_(model), rows_(std::move(rows)), observer_(observer), waits_(waits) {}

StepRecords::~StepRecords() { EndFailures(); }

void StepRecords::EndFailures() {
  if (std::exchange(failed_steps_, 0) > 0) observer_->OnStepsRecovered(*model_);
}

void StepRecords::RecordOutcome(const absl::Status& status, bool split) {
  if (status.ok()) return EndFailures();
  if (!split) ++failed_steps_;
  observer_->OnStepFailed(*model_, status, failed_steps_);
}

bool StepRecords::IsLatest(std::span<RequestRow* const> rows) const {
  size_t named = 0;
  int32_t count = 0;
  bool same = true;
  ForEachRequest(rows, [&](const std::shared_ptr<const RequestName>& name) {
    ++count;
    if (name == nullptr || named == CoBatchedRequests::kMaxNamed) return;
    same = same && named < latest_->named.size() && latest_->named[named] == name;
    ++named;
  });
  return same && named == latest_->named.size() && count == latest_->requests;
}

std::shared_ptr<const CoBatchedRequests> StepRecords::CoBatched(std::span<RequestRow* const> rows) {
  if (IsLatest(rows)) return latest_;
  const auto requests = std::make_shared<CoBatchedRequests>();
  ForEachRequest(rows, [&](const std::shared_ptr<const RequestName>& name) {
    ++requests->requests;
    if (name != nullptr && requests->named.size() < CoBatchedRequests::kMaxNamed) {
      requests->named.push_back(name);
    }
  });
  latest_ = requests;
  return latest_;
}

void StepRecords::RecordStep(const InFlightStep& step) {
  const StepTiming& timing = step.timing;
  const std::span<RequestRow* const> rows = step.running.rows;
  const std::shared_ptr<const CoBatchedRequests> co_batched = CoBatched(rows);
  for (size_t i = 0; i < rows.size();) {
    ActiveRequest* const request = rows[i]->owner;
    ExplainedStep own{.step = step.number,
                      .start = timing.begin,
                      .replay = timing.end - timing.begin,
                      .last_step = step.number,
                      .longest = timing.end - timing.begin,
                      .co_batched = co_batched,
                      .bucket = timing.bucket(),
                      .batch = step.running.size,
                      .trigger = step.decision.trigger,
                      .lookup = timing.lookup};
    bool wanted = false;
    for (; i < rows.size() && rows[i]->owner == request; ++i) {
      if (rows[i]->is_void()) continue;
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
    if (rows[i]->is_void()) useful -= step.slot->tokens_of(i);
  }
  return {.model = model_,
          .bucket = timing.bucket(),
          .useful_tokens = useful,
          .computed_tokens = rows_.Of(timing.bucket().tokens, step.slot->computed_tokens()),
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
