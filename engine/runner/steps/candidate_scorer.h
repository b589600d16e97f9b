// Scores the candidates of rows between steps.
#pragma once

#include <cstdint>
#include <deque>

#include "base/clock.h"
#include "engine/backend.h"
#include "engine/runner/requests/active_request.h"
#include "engine/runner/requests/runner_state.h"

namespace sluice {

// Scores in slices of bounded work, in the order of the queue, on the threads that compute steps.
// Scores and steps take turns: after a step, scores may take as long as it took, and at least a
// slice. A waiting sequence that is ahead of them in the queue's order waits for a slice at most.
//
// The scheduling thread alone uses it, without the runner's lock unless said otherwise.
class CandidateScorer {
 public:
  // The products of numbers in a slice: about a millisecond's work of one thread.
  static constexpr int64_t kSliceProducts = 1 << 20;

  // Nothing is owned; all outlive the scorer.
  CandidateScorer(const ExecutableModel* executable, const Model* model, Clock* clock,
                  RunnerState* state);

  // Takes a row whose prompt is computed if it has candidates and was not taken before.
  void Take(RequestRow* row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mu);
  bool empty() const { return rows_.empty(); }

  // Begins the turn of scores, behind a step that took this long.
  void EndStep(nanoseconds duration);
  // Returns whether it is the turn of scores, while a step is under way or not.
  bool IsDue(bool step_under_way) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mu);
  // Scores a slice. Rows whose requests have failed or expired leave without a score.
  void ScoreSlice();

 private:
  // Returns the row to score, or nullptr. Drops those ahead of it that are not wanted any more.
  RequestRow* Next();
  void Leave(RequestRow* row, bool finite);

  const ExecutableModel* const executable_;
  const int64_t slice_;  // candidates
  Clock* const clock_;
  RunnerState* const state_;
  std::deque<RequestRow*> rows_;  // in the queue's order
  nanoseconds turn_{0};           // what is left of the turn
  bool has_scored_ = true;        // in this turn
};

}  // namespace sluice
