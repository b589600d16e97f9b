// Scores the candidates of rows between steps.
#pragma once

#include <cstdint>
#include <deque>

#include "base/clock.h"
#include "engine/backend.h"
#include "engine/runner/requests/active_request.h"
#include "engine/runner/requests/runner_state.h"

namespace sluice {

// Scores in slices of bounded work, in queue order, on the threads that compute steps. Scoring and
// steps alternate: after a step, scoring may take as much time as the step, and at least one slice.
// A waiting sequence that is ahead of the candidates in the queue's order waits for at most one
// slice.
//
// Used only by the scheduling thread, without the runner's lock unless noted otherwise.
class CandidateScorer {
 public:
  // The number of multiplications per slice: about a millisecond of work for one thread.
  static constexpr int64_t kSliceProducts = 1 << 20;

  // Nothing is owned; all pointers outlive the scorer.
  CandidateScorer(const ExecutableModel* executable, const Model* model, Clock* clock,
                  RunnerState* state);

  // Takes a row if its prompt is computed, it has candidates and it was not taken before.
  void Take(RequestRow* row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mu);
  bool empty() const { return rows_.empty(); }

  // Begins the turn of scoring after a step that took `duration`.
  void EndStep(nanoseconds duration);
  // Returns whether it is the turn of scoring; `step_under_way` is whether a step is in progress.
  bool IsDue(bool step_under_way) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mu);
  // Scores a slice. Rows whose requests have failed or expired are dropped without a score.
  void ScoreSlice();

 private:
  // Returns the row to score, or nullptr. Drops rows before it whose scores are no longer needed.
  RequestRow* Next();
  // Scores the next `count` candidates of the row. Returns Internal if a score is not finite.
  absl::Status Score(RequestRow* row, int64_t count);
  // Drops the row. Fails its request unless `status` is ok.
  void Leave(RequestRow* row, const absl::Status& status);

  const ExecutableModel* const executable_;
  const int64_t slice_;  // candidates
  Clock* const clock_;
  RunnerState* const state_;
  std::deque<RequestRow*> rows_;  // in the queue's order
  nanoseconds turn_{0};           // the rest of the turn
  bool has_scored_ = true;        // in this turn
};

}  // namespace sluice
