// Records the steps of a model in the histories of their requests and for the observer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "engine/journal/decision_history.h"
#include "engine/observer.h"
#include "engine/runner/steps/in_flight_step.h"

namespace sluice {

// Used only by the scheduling thread, and destroyed after it has ended.
class StepRecords {
 public:
  // Nothing is owned; all pointers outlive the object. `rows` are the model's on its device.
  StepRecords(const Model* model, ComputedRows rows, Observer* observer, const RecentWaits* waits);
  ~StepRecords();  // ends the failures of a model that was withdrawn before
  StepRecords(const StepRecords&) = delete;
  StepRecords& operator=(const StepRecords&) = delete;

  // Reports the outcome of a step to the observer. A step that is `split` after an error does not
  // count as a failure.
  void RecordOutcome(const absl::Status& status, bool split);
  // Returns the requests of a step, whose rows are adjacent. Consecutive steps of the same requests
  // share one object, so memory is allocated only when a request joins or leaves.
  std::shared_ptr<const CoBatchedRequests> CoBatched(std::span<RequestRow* const> rows);
  // Adds the step to the trace and history of each of its requests, whose rows are adjacent.
  void RecordStep(const InFlightStep& step);
  // Returns the trace of a step that has run, before its rows leave it. The tokens of void rows do
  // not count as useful.
  BatchTrace TraceOf(const InFlightStep& step) const;

 private:
  void EndFailures();
  bool IsLatest(std::span<RequestRow* const> rows) const;

  const Model* const model_;
  const ComputedRows rows_;
  Observer* const observer_;
  const RecentWaits* const waits_;
  // The requests of the latest step.
  std::shared_ptr<const CoBatchedRequests> latest_ = std::make_shared<CoBatchedRequests>();
  int64_t failed_steps_ = 0;  // consecutive
};

}  // namespace sluice
