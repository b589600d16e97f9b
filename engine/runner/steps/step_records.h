// Keeps what the steps of a model did: in the histories of their requests and for the observer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "engine/journal/decision_history.h"
#include "engine/observer.h"
#include "engine/runner/steps/in_flight_step.h"

namespace sluice {

// Used by the scheduling thread alone.
class StepRecords {
 public:
  // Nothing is owned; all outlive the object. Backends compute multiples of `row_multiple` tokens.
  StepRecords(const Model* model, int32_t row_multiple, Observer* observer,
              const RecentWaits* waits);

  // Tells the observer how a step ended. A step that is `split` after an error is no failure yet.
  void RecordOutcome(const absl::Status& status, bool split);
  // Returns the requests of a step, whose rows are neighbours. Consecutive steps of the same
  // requests share one object, so that nothing is allocated until a request comes or goes.
  std::shared_ptr<const CoBatchedRequests> CoBatched(std::span<RequestRow* const> rows);
  // Adds the step to the trace and history of each request in it, whose rows are neighbours.
  void RecordStep(const InFlightStep& step);
  // Returns the trace of a step that has run and whose rows have not left it. The tokens of void
  // rows are not useful ones.
  BatchTrace TraceOf(const InFlightStep& step) const;

 private:
  bool IsLatest(std::span<RequestRow* const> rows) const;

  const Model* const model_;
  const int32_t row_multiple_;
  Observer* const observer_;
  const RecentWaits* const waits_;
  // The requests of the latest step.
  std::shared_ptr<const CoBatchedRequests> latest_ = std::make_shared<CoBatchedRequests>();
  int64_t failed_steps_ = 0;  // consecutive
};

}  // namespace sluice
