// The policy of Sluice.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "engine/schedule/batch_former.h"
#include "engine/schedule/lineup.h"
#include "engine/schedule/room.h"

namespace sluice {

// Of all that could run next, what does the most useful work per time.
//
// Decodes, one token each of sequences that run, ride in every step. The rest of this is about the
// others, fresh ones and running ones whose prompt is not computed yet: see Lineup for their order and
// for who is left out, Room for what a step may take of them beside decodes.
//
// Cut: for each bucket, the longest prefix of them that it holds. Fill: what room is left goes to
// sequences from a bounded window behind the prefix, the largest that fits first. The candidate with
// the most useful tokens per estimated second wins, where a smaller batch must be better than a larger
// one by more than estimates err; a larger batch that pads more may lose to a smaller one whose rest
// waits for company. Every candidate has the first of them, or a cheap step of decodes would always win.
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
// allowance is a barrier to those that do not run.
//
// Waiting. Only when nothing runs, all that waits would go and max_queue_delay > 0. See WorthWaiting.
class CutAndFill : public BatchFormer {
 public:
  explicit CutAndFill(const BatchOptions& options)
      : max_delay_(std::chrono::microseconds(options.max_queue_delay_us)), lineup_(options) {}

  BatchDecision Form(const SequenceQueue& queue, const FormerInputs& inputs, MonoTime now,
                     std::vector<WaitingSequence*>* batch) override;

 private:
  struct Candidate {
    std::vector<WaitingSequence*> members;  // the decodes first
    BatchSize size{};
    Bucket bucket{};
    double rate = 0;  // useful tokens per second

    void Add(WaitingSequence* sequence);
  };

  // For a `launch` that leaves nothing waiting: whether to hold it back, at most until `due`.
  static BatchDecision WaitOrLaunch(BatchDecision launch, MonoTime due, const FormerInputs& inputs,
                                    MonoTime now, std::vector<WaitingSequence*>* batch);
  Candidate* Best(const FormerInputs& inputs, MonoTime now, bool heed_deadlines);
  BatchSize SizeOfAll() const;
  const WaitingSequence* MostUrgent(const FormerInputs& inputs, MonoTime now) const;
  bool Compose(const FormerInputs& inputs, const Bucket& bucket, MonoTime end);
  size_t Cut(MonoTime end);
  void Fill(size_t begin, MonoTime end);
  void Add(size_t rider);
  void Assemble(const SequenceQueue& queue, Candidate* best, std::vector<WaitingSequence*>* batch);

  const nanoseconds max_delay_;
  Lineup lineup_;

  // Scratch of a decision.
  std::vector<uint64_t> by_size_;   // tokens and index of the riders to fill with
  std::vector<int32_t> allowance_;  // how many may pass those ahead of a rider
  Candidate trial_, best_, rescue_;
  Room room_;            // what trial_ may still take
  int32_t passing_ = 0;  // riders of it that passed others
};

}  // namespace sluice
