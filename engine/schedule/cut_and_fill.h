// The policy of Sluice.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "engine/schedule/batch_former.h"

namespace sluice {

// Of all that could run next, what does the most useful work per time.
//
// Cut: for each bucket, the longest prefix of the queue that it holds. Fill: what room is left goes to
// sequences from a bounded window behind the prefix, the largest that fits first. The candidate with
// the most useful tokens per estimated second wins, where a smaller batch must be better than a larger
// one by more than estimates err; a larger batch that pads more may lose to a smaller one whose rest
// waits for company.
//
// Deadlines. Sequences that could not wait for another full batch are urgent and go first, the earliest
// deadline first, as far as max_overtakes lets them. A candidate leaves out whoever would expire before
// it ends: that work would be in vain, and in overload, when whoever heads the queue is about to
// expire, all of it would be. Left out so, a sequence expires before the next decision, hence it is no
// barrier. The most urgent one, though, is served in time when that costs no more than half of the
// best throughput: less than that, or a stream of them would starve the others. When everybody would be
// late the queue is served as if there were no deadlines, since the estimate may err.
//
// max_overtakes. A sequence may be passed over by as many as its bound still allows; one without
// allowance is a barrier.
//
// Waiting. Only when all that waits would go and max_queue_delay > 0. See WorthWaiting.
class CutAndFill : public BatchFormer {
 public:
  // Sequences behind the prefix that may fill.
  static constexpr size_t kWindow = 256;
  // From the front of the queue, in which urgent sequences are found.
  static constexpr size_t kUrgentReach = 1024;
  // That go first in one batch.
  static constexpr size_t kMostUrgent = 64;

  explicit CutAndFill(const BatchOptions& options)
      : max_delay_(std::chrono::microseconds(options.max_queue_delay_us)),
        max_overtakes_(options.max_overtakes) {}

  BatchDecision Form(const SequenceQueue& queue, const FormerInputs& inputs, MonoTime now,
                     std::vector<WaitingSequence*>* batch) override;

 private:
  struct Candidate {
    std::vector<WaitingSequence*> members;
    BatchSize size{};
    Bucket bucket{};
    double rate = 0;  // useful tokens per second
  };

  // For a `launch` that leaves nothing waiting: whether to hold it back, at most until `due`.
  static BatchDecision WaitOrLaunch(BatchDecision launch, MonoTime due, const FormerInputs& inputs,
                                    MonoTime now, std::vector<WaitingSequence*>* batch);
  void LoadOrder(const SequenceQueue& queue, const Bucket& largest, bool urgent);
  void MoveUrgentFirst(const SequenceQueue& queue, MonoTime until);
  const Candidate* Best(const FormerInputs& inputs, MonoTime now, bool heed_deadlines);
  BatchSize WindowSize() const;
  const WaitingSequence* MostUrgent(const FormerInputs& inputs, MonoTime now) const;
  void Compose(const FormerInputs& inputs, const Bucket& bucket, MonoTime end);
  size_t Cut(const Bucket& bucket, MonoTime end);
  void Fill(const Bucket& bucket, size_t begin, MonoTime end);
  void Add(WaitingSequence* sequence);

  const nanoseconds max_delay_;
  const int32_t max_overtakes_;

  // Scratch of a decision.
  std::vector<WaitingSequence*> order_;  // the front of the queue, urgent ones moved to its head
  size_t window_end_ = 0;                // of what may ride
  size_t jumped_ = 0;                    // urgent ones at the head of order_
  std::vector<WaitingSequence*> urgent_, others_;
  std::vector<int32_t> allowance_;  // how many may pass those ahead of an index
  std::vector<uint64_t> by_size_;   // tokens and index of those to fill with
  Candidate trial_, best_, rescue_;
};

}  // namespace sluice
