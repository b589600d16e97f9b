// The batching policy of Sluice.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "engine/schedule/batch_candidates.h"
#include "engine/schedule/batch_former.h"
#include "engine/schedule/step_budget.h"

namespace sluice {

// Chooses the batch that does the most useful work per time.
//
// Decodes, one token each of running sequences, are in every step. The following concerns the other
// sequences: new ones, and running ones whose prompt is not computed yet. BatchCandidates orders
// them and excludes some; StepBudget bounds what a step may take of them beside the decodes.
//
// Cut: for each bucket, take the longest prefix of the candidates that the bucket holds. Fill:
// spend the rest of the bucket on sequences from a bounded window behind the prefix, the largest
// that fits first. The batch with the most useful tokens per estimated second wins, but a smaller
// batch must be better than a larger one by more than the error of estimates. A larger batch with
// more padding may lose to a smaller one that leaves sequences waiting. Every batch contains the
// first candidate, since otherwise a cheap step of decodes alone would always win.
//
// Deadlines. A sequence that could not wait for another full batch is urgent and runs first, the
// earliest deadline first, as far as max_overtakes allows. A batch excludes sequences that would
// expire before it ends: their results would be dropped, and under overload, when the head of the
// queue is always about to expire, that would be all work. Such a sequence expires before the next
// decision, hence it is no barrier to others. The most urgent sequence is nevertheless served in
// time if that costs no more than half of the best throughput; at a higher price a stream of urgent
// sequences would starve the others. If every sequence would be late, the queue is served as if
// there were no deadlines, since the estimate may be wrong.
//
// max_overtakes. A sequence is passed by as many others as its bound still allows. A sequence at
// its bound is a barrier to sequences that do not run.
//
// Waiting. A batch is held back only if no sequence runs, every waiting sequence would be in it and
// max_queue_delay > 0; see WorthWaiting.
class PackedFormer : public BatchFormer {
 public:
  explicit PackedFormer(const BatchOptions& options)
      : max_delay_(std::chrono::microseconds(options.max_queue_delay_us)), candidates_(options) {}

  BatchDecision Form(const SequenceQueue& queue, const FormerInputs& inputs, MonoTime now,
                     std::vector<WaitingSequence*>* batch) override;

 private:
  struct TrialBatch {
    std::vector<WaitingSequence*> members;  // the decodes first
    BatchSize size{};
    Bucket bucket{};
    double rate = 0;  // useful tokens per second

    void Add(WaitingSequence* sequence);
  };

  // Decides for a `launch` that leaves nothing waiting whether to hold it back, at most until
  // `due`.
  static BatchDecision WaitOrLaunch(BatchDecision launch, MonoTime due, const FormerInputs& inputs,
                                    MonoTime now, std::vector<WaitingSequence*>* batch);
  TrialBatch* BestBatch(const FormerInputs& inputs, MonoTime now, bool heed_deadlines);
  BatchSize SizeOfAll() const;
  const WaitingSequence* MostUrgent(const FormerInputs& inputs, MonoTime now) const;
  bool Compose(const FormerInputs& inputs, const Bucket& bucket, MonoTime end);
  size_t Cut(MonoTime end);
  void Fill(size_t begin, MonoTime end);
  void Add(size_t index);
  void Assemble(const SequenceQueue& queue, TrialBatch* best, std::vector<WaitingSequence*>* batch);

  const nanoseconds max_delay_;
  BatchCandidates candidates_;

  // Scratch of a decision.
  std::vector<uint64_t> by_size_;   // tokens and index of each sequence that may fill the batch
  std::vector<int32_t> allowance_;  // by index: how many sequences may still pass those ahead of it
  TrialBatch trial_, best_, rescue_;
  StepBudget budget_;    // of trial_
  int32_t passing_ = 0;  // sequences of trial_ that passed others
};

}  // namespace sluice
