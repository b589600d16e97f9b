#include "engine/runner/steps/candidate_scorer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/out_of_memory.h"

namespace sluice {

CandidateScorer::CandidateScorer(const ExecutableModel* executable, const Model* model,
                                 Clock* clock, RunnerState* state)
    : executable_(executable),
      slice_(std::max<int64_t>(kSliceProducts / model->config.hidden_size, 1)),
      clock_(clock),
      state_(state) {}

void CandidateScorer::Take(RequestRow* row) {
  const RowStates* const states = row->outputs.states.get();
  if (row->account.scoring || states == nullptr || states->unscored() == 0) return;
  state_->requests.BeginScoring(row);
  const auto before = [this](const RequestRow* a, const RequestRow* b) {
    return state_->queue().Before(*a, *b);
  };
  rows_.insert(std::upper_bound(rows_.begin(), rows_.end(), row, before), row);
}

void CandidateScorer::EndStep(nanoseconds duration) {
  turn_ = duration;
  has_scored_ = false;
}

bool CandidateScorer::IsDue(bool step_under_way) const {
  if (empty()) return false;
  if (!has_scored_) return true;
  if (step_under_way) return turn_ > nanoseconds(0);
  const WaitingSequence* const first = state_->queue().First();
  if (first == nullptr) return true;
  return turn_ > nanoseconds(0) && state_->queue().Before(*rows_.front(), *first);
}

void CandidateScorer::ScoreSlice() {
  const MonoTime begin = clock_->Now();
  int64_t left = slice_;
  while (left > 0) {
    RequestRow* const row = Next();
    if (row == nullptr) break;
    const int64_t count = std::min(left, row->outputs.states->unscored());
    const absl::Status status = OrOutOfMemory([&] { return Score(row, count); });
    left -= count;
    if (!status.ok() || row->outputs.states->unscored() == 0) Leave(row, status);
  }
  const nanoseconds took = clock_->Now() - begin;
  turn_ -= took;
  has_scored_ = true;
  if (left == slice_) return;
  MutexLock lock(&state_->mu);
  state_->admission.Learn(
      AdmissionControl::ScoredCandidates{.count = slice_ - left, .duration = took});
}

RequestRow* CandidateScorer::Next() {
  MutexLock lock(&state_->mu);
  const MonoTime now = clock_->Now();
  while (!rows_.empty()) {
    RequestRow* const row = rows_.front();
    if (row->deadline <= now) {
      state_->requests.Fail(row->owner, absl::DeadlineExceededError(
                                            "the deadline passed while candidates were scored"));
    }
    if (row->owner->status.ok()) return row;
    rows_.pop_front();
    state_->requests.EndScoring(row);
  }
  return nullptr;
}

absl::Status CandidateScorer::Score(RequestRow* row, int64_t count) {
  RowStates& states = *row->outputs.states;
  if (states.ScoreCandidates(row->index, count, *executable_, &row->owner->reply)) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("scores of row ", row->index,
                                          " are not finite; check the model with sluice verify"));
}

void CandidateScorer::Leave(RequestRow* row, const absl::Status& status) {
  MutexLock lock(&state_->mu);
  if (!status.ok()) state_->requests.Fail(row->owner, status);
  rows_.pop_front();
  state_->requests.EndScoring(row);
}

}  // namespace sluice
