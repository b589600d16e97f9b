// Sluice's own batching policy.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "engine/schedule/batch_candidates.h"
#include "engine/schedule/batch_former.h"
#include "engine/schedule/step_budget.h"

namespace sluice {

// Chooses the batch with the most useful work per time.
//
// Decodes, one token for each running sequence, are in every step. The rest of this comment is
// about the other sequences: new sequences, and running sequences whose prompt is not computed yet.
// BatchCandidates orders them and excludes some; StepBudget limits the tokens, sequences and pages
// that a step may take in addition to the decodes.
//
// Cut: for each bucket, take the longest prefix of the candidates that the bucket holds. Fill: use
// the rest of the bucket for sequences from a bounded window after the prefix, the largest fitting
// sequence first. The batch with the most useful tokens per estimated second wins, but a smaller
// batch must be better than a larger one by more than the error of estimates. A larger batch with
// more padding may lose to a smaller batch that leaves sequences waiting. Every batch contains the
// first candidate, because otherwise a cheap step of decodes only would always win.
//
// If empty bucket rows cost nothing (ComputedRows::batch_only), as on a CPU, the batch with the
// fewest tokens wins whose rate is within 5 % of the best. The rate of full batches approaches its
// limit as the fixed cost of a step becomes small, so larger steps would only add latency
// (loadtest/results/step_size.md). Batches of less than a millisecond are not made smaller.
//
// Deadlines. A sequence that cannot wait for another full batch is urgent and runs first, the
// earliest deadline first, as far as max_overtakes allows. A batch excludes sequences that would
// expire before it ends, because their results would be dropped. Under overload the head of the
// queue is always about to expire, so without this rule all work would be dropped. Such a sequence
// expires before the next decision and is therefore not a barrier to others. The most urgent
// sequence is still served in time if that costs at most half of the best throughput; at a higher
// cost, a stream of urgent sequences would starve the others. If every sequence would be late, the
// queue is served without regard to deadlines, because the estimate may be wrong.
//
// max_overtakes. A sequence is overtaken by at most this many others in total. A sequence that has
// reached this limit is a barrier to sequences that do not run.
//
// Waiting. A batch is delayed only if no sequence runs, the batch would contain every waiting
// sequence and max_queue_delay > 0; see WorthWaiting.
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

  // Decides whether to delay a `launch` that leaves no sequence waiting, at most until `due`.
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
  std::vector<int32_t> allowance_;  // by index: how many may overtake those ahead of it
  TrialBatch trial_, best_, rescue_;
  StepBudget budget_;    // of trial_
  int32_t passing_ = 0;  // sequences of trial_ that overtook others
};

}  // namespace sluice
