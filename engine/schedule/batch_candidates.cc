#include "engine/schedule/batch_candidates.h"

#include <algorithm>
#include <iterator>

namespace sluice {
namespace {

constexpr int32_t kAnyNumber = std::numeric_limits<int32_t>::max();

auto Before(const SequenceQueue& queue) {
  return
      [&queue](const WaitingSequence* a, const WaitingSequence* b) { return queue.Before(*a, *b); };
}

}  // namespace

void BatchCandidates::Load(const SequenceQueue& queue, const FormerInputs& inputs,
                           MonoTime urgent_until) {
  SplitRunning(queue);
  budget_ = StepBudget(options_, queue, inputs, std::ssize(decodes_));
  const bool urgent = queue.EarliestDeadline() <= urgent_until;
  LoadFresh(queue, urgent ? kUrgentReach : 2 * kWindow);
  ordered_.clear();
  jumped_.clear();
  if (urgent) PickUrgent(queue, urgent_until);
  urgent_ = ordered_.size();
  AddOthers(queue);
  DropUnfit();
}

void BatchCandidates::SplitRunning(const SequenceQueue& queue) {
  decodes_.clear();
  prompts_.clear();
  queue.Running(&others_);
  for (WaitingSequence* sequence : others_) {
    (IsDecode(*sequence) ? decodes_ : prompts_).push_back(sequence);
  }
}

// Loads the new sequences that one step may take and the window after them. Stops at `reach` if
// that is sufficient.
void BatchCandidates::LoadFresh(const SequenceQueue& queue, size_t reach) {
  StepBudget budget = budget_;
  size_t prefix = 0;
  for (;; reach *= 2) {
    queue.Front(reach + queue.running(), &fresh_);
    const bool all = std::ssize(fresh_) == queue.size();
    std::erase_if(fresh_, [](const WaitingSequence* sequence) { return sequence->running; });
    while (prefix < fresh_.size() && budget.Fits(*fresh_[prefix])) budget.Take(*fresh_[prefix++]);
    if (all || prefix + kWindow <= fresh_.size()) break;
  }
  window_end_ = std::min(prefix + kWindow, fresh_.size());
}

// Moves urgent sequences to the front, if the sequences ahead of them allow it.
void BatchCandidates::PickUrgent(const SequenceQueue& queue, MonoTime until) {
  const auto before = Before(queue);
  others_.clear();
  std::merge(fresh_.begin(), fresh_.end(), prompts_.begin(), prompts_.end(),
             std::back_inserter(others_), before);
  allowance_.clear();
  int32_t least = kAnyNumber;
  for (const WaitingSequence* sequence : others_) {
    allowance_.push_back(least);
    least = std::min(least, Allowance(*sequence));
  }
  queue.Urgent(until, kMaxUrgent + decodes_.size(), &by_deadline_);
  for (WaitingSequence* sequence : by_deadline_) {
    if (ordered_.size() == kMaxUrgent) break;
    const auto it = std::lower_bound(others_.begin(), others_.end(), sequence, before);
    if (it == others_.end() || *it != sequence) continue;  // a decode, or too far back
    if (allowance_[it - others_.begin()] > std::ssize(ordered_)) {
      ordered_.push_back(sequence);
    }
  }
  jumped_.assign(ordered_.begin(), ordered_.end());
  std::sort(jumped_.begin(), jumped_.end(), before);
}

// Appends the other sequences after the urgent sequences: the new sequences of the window, and the
// running sequences of the whole queue.
void BatchCandidates::AddOthers(const SequenceQueue& queue) {
  const auto before = Before(queue);
  fresh_.resize(window_end_);
  others_.clear();
  std::merge(fresh_.begin(), fresh_.end(), prompts_.begin(), prompts_.end(),
             std::back_inserter(others_), before);
  std::set_difference(others_.begin(), others_.end(), jumped_.begin(), jumped_.end(),
                      std::back_inserter(ordered_), before);
}

// Drops the sequences that cannot be in the step.
void BatchCandidates::DropUnfit() {
  may_pass_.clear();
  first_passing_ = ordered_.size();
  const size_t urgent = urgent_;
  int32_t least = kAnyNumber;
  size_t kept = 0;
  for (size_t i = 0; i < ordered_.size(); ++i) {
    WaitingSequence* const sequence = ordered_[i];
    const bool passes_freely = i < urgent || sequence->running;
    if (budget_.CanTake(*sequence) && (passes_freely || least > 0)) {
      if (i >= urgent && least < kAnyNumber) first_passing_ = std::min(first_passing_, kept);
      may_pass_.push_back(passes_freely ? kAnyNumber : least);
      ordered_[kept++] = sequence;
    } else {
      if (i < urgent) --urgent_;
      least = std::min(least, Allowance(*sequence));
    }
  }
  ordered_.resize(kept);
}

}  // namespace sluice
