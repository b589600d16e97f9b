// The batching policies of other servers, for comparison.
#pragma once

#include <chrono>
#include <cstdint>

#include "engine/schedule/batch_former.h"

namespace sluice {

// Launches sequences from the queue, in order, up to the capacity of the ladder:
//   * kFifoPacked: the longest prefix of the queue;
//   * kStaticPadded: the same, like Triton's dynamic batcher with the ladder's row counts as
//     preferred sizes: a batch that is launched before the delay is over is cut to the largest
//     preferred size that it reaches;
//   * kPaddedBuckets: one queue per length bucket, like the classic bucketing libraries: of the
//     first kWindow sequences, the sequences in the same ladder column as the head. A sequence is
//     excluded if another would then be overtaken more often than max_overtakes allows.
// With max_queue_delay, a batch that has room left and includes all waiting sequences is delayed
// until its oldest sequence has waited for that time, or one of its sequences may miss its
// deadline.
class BaselineFormer : public BatchFormer {
 public:
  static constexpr size_t kWindow = 1024;

  explicit BaselineFormer(const BatchOptions& options)
      : policy_(options.policy),
        max_delay_(std::chrono::microseconds(options.max_queue_delay_us)),
        max_overtakes_(options.max_overtakes) {}

  BatchDecision Form(const SequenceQueue& queue, const FormerInputs& inputs, MonoTime now,
                     std::vector<WaitingSequence*>* batch) override;

 private:
  // Gathers the batch and returns its size.
  BatchSize Gather(const SequenceQueue& queue, const Ladder& ladder,
                   std::vector<WaitingSequence*>* batch) const;
  // Removes from `waiting`, the front of the queue, the sequences that are not in the head's
  // column.
  void KeepColumn(const Ladder& ladder, std::vector<WaitingSequence*>* waiting) const;

  const PolicyKind policy_;
  const nanoseconds max_delay_;
  const int32_t max_overtakes_;
};

}  // namespace sluice
