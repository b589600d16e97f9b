// The sequences that the next step may carry, in the order in which they are tried.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "engine/schedule/step_budget.h"

namespace sluice {

// The front of a queue, prepared for one decision of PackedFormer. Decodes are always in the step.
// The other sequences are in queue order, but urgent sequences are moved ahead, the earliest
// deadline first, as far as max_overtakes allows.
//
// A sequence is excluded if it would not fit even if it were the only one added to the decodes,
// because KV pages or a place among the running sequences are missing. Running sequences may always
// overtake an excluded sequence. Other sequences may overtake it only as far as max_overtakes
// allows, so that eventually pages and places become free for it. If nothing runs, a sequence is
// excluded only if such a barrier stops it.
class BatchCandidates {
 public:
  // The length of the window after the prefix. Sequences in it may fill up a batch.
  static constexpr size_t kWindow = 256;
  // The length of the front of the queue that is searched for urgent sequences.
  static constexpr size_t kUrgentReach = 1024;
  // The maximum number of urgent sequences that are moved ahead in one batch.
  static constexpr size_t kMaxUrgent = 64;

  explicit BatchCandidates(const BatchOptions& options) : options_(options) {}

  // Replaces the candidates by the candidates of `queue`. A sequence is urgent if its deadline is
  // at or before `urgent_until`. Allocates only if the queue is larger than ever before.
  void Load(const SequenceQueue& queue, const FormerInputs& inputs, MonoTime urgent_until);

  std::span<WaitingSequence* const> decodes() const { return decodes_; }
  std::span<WaitingSequence* const> ordered() const { return ordered_; }
  size_t urgent() const { return urgent_; }  // the number of leading `ordered` that are urgent

  // The budget left by the decodes in the ladder's largest bucket, and in another bucket.
  const StepBudget& budget() const { return budget_; }
  StepBudget BudgetIn(const Bucket& bucket) const { return budget_.ForBucket(bucket); }

  // ordered()[index] may join a batch only while fewer than this many sequences of the batch
  // overtake excluded sequences. Unlimited for urgent and for running sequences.
  int32_t MayPass(size_t index) const { return may_pass_[index]; }
  // The index of the first sequence in ordered() that overtakes an excluded sequence. Urgent
  // sequences do not count.
  size_t first_passing() const { return first_passing_; }
  // The number of sequences that may still overtake this one.
  int32_t Allowance(const WaitingSequence& sequence) const {
    return options_.max_overtakes - sequence.overtaken;
  }

 private:
  void SplitRunning(const SequenceQueue& queue);
  void LoadFresh(const SequenceQueue& queue, size_t reach);
  void PickUrgent(const SequenceQueue& queue, MonoTime until);
  void AddOthers(const SequenceQueue& queue);
  void DropUnfit();

  const BatchOptions options_;
  std::vector<WaitingSequence*> decodes_, ordered_;
  size_t urgent_ = 0;
  size_t first_passing_ = 0;
  std::vector<int32_t> may_pass_;
  StepBudget budget_;

  // Scratch. All but by_deadline_ are in the order of the queue.
  std::vector<WaitingSequence*> by_deadline_, jumped_;
  std::vector<WaitingSequence*> fresh_, others_;
  std::vector<WaitingSequence*> prompts_;  // running, their prompts not yet computed
  std::vector<int32_t>
      allowance_;          // by index of others_: how many may overtake the sequences ahead of it
  size_t window_end_ = 0;  // in fresh_
};

}  // namespace sluice
