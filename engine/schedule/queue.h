// What waits to be computed, in the order in which it is to be computed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory_resource>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "base/clock.h"

namespace sluice {

// Level 1 is the most urgent; 0 in the protocol means the default.
inline constexpr int kPriorityLevels = 3;
inline constexpr int kDefaultPriority = 2;

// One row of a request: the unit that is queued and grouped. Rows of one request may run in
// different batches. Fields do not change while it is queued, except by the queue.
struct WaitingSequence {
  uint64_t ticket = 0;  // of its arrival; unique. It keeps this when it comes back for another step
  int priority = kDefaultPriority;
  int32_t first_position = 0;   // that its next step computes
  int32_t position_offset = 0;  // from these to the positions that choose weights
  int32_t tokens = 0;           // that its next step computes
  int32_t later_tokens = 0;     // of its prompt, that steps after the next one compute
  int32_t sampled_rows = 1;     // of its next step
  int32_t pages = 0;            // KV pages that its tokens and later tokens take of those available
  // It holds KV pages from a step before, and so is in the way of others until it ends.
  bool running = false;
  bool generates = false;  // it comes back after its prompt, for one step per token
  // That it may be part of in all, those of its prompt counted as one; for the ladder's reviews.
  int32_t expected_steps = 1;
  MonoTime queued{};  // arrival
  MonoTime deadline = MonoTime::max();
  // Sequences taken since its last Push that stood behind it; kept by the queue.
  int32_t overtaken = 0;
};

// Ordered by arrival, where each priority level below the first counts as a later arrival by
// `priority_step`; equals by ticket. So no stream of urgent requests starves the others. Owns nothing:
// a sequence outlives its stay. Not thread-safe. Push and Remove are O(log n), and allocate only when
// more is queued than ever before.
class SequenceQueue {
 public:
  explicit SequenceQueue(nanoseconds priority_step) : priority_step_(priority_step) {}

  // Begins its count of `overtaken`.
  void Push(WaitingSequence* sequence);
  // It must be queued. Nobody is overtaken: for cancellation and expiry.
  void Remove(const WaitingSequence* sequence);
  // Removes these, which must be queued and in its order, to be run now, and counts each as
  // overtaking every sequence that stood ahead of it and stays. O(log n) each, and O(1) for each that
  // stood ahead of the last.
  void Take(std::span<WaitingSequence* const> sequences);

  // Gives a queued sequence another next step: the fields from first_position to running. Its place
  // and what it was overtaken by stay.
  struct NextStep {
    int32_t first_position = 0;
    int32_t tokens = 0;
    int32_t later_tokens = 0;
    int32_t sampled_rows = 1;
    int32_t pages = 0;
    bool running = false;
  };
  void Revise(WaitingSequence* sequence, const NextStep& next);

  // Replaces `out` by the running sequences, in order.
  void Running(std::vector<WaitingSequence*>* out) const;
  // The last of them in order; nullptr when there is none.
  WaitingSequence* LastRunning() const;
  size_t running() const { return running_.size(); }
  int64_t running_pages() const { return running_pages_; }  // that their next steps take

  // Replaces `out` by the first sequences in order, at most `count`.
  void Front(size_t count, std::vector<WaitingSequence*>* out) const;
  // The same for those with a deadline at or before `until`, the earliest deadline first.
  void Urgent(MonoTime until, size_t count, std::vector<WaitingSequence*>* out) const;
  // Does `a` stand ahead of `b`?
  bool Before(const WaitingSequence& a, const WaitingSequence& b) const;

  // MonoTime::max() when nothing waits with a deadline.
  MonoTime EarliestDeadline() const;
  // A sequence whose deadline is at or before `now`, the earliest first; nullptr when there is
  // none.
  WaitingSequence* Expired(MonoTime now) const;

  // MonoTime::max() when nothing waits.
  MonoTime OldestArrival() const;

  bool empty() const { return order_.empty(); }
  size_t size() const { return order_.size(); }
  int64_t tokens() const { return tokens_; }

  // The prompts that wait, have not begun, are due at or before `deadline` (so that they have one), and of
  // `priority` or more urgent. O(those due).
  struct Prompts {
    int64_t sequences = 0;
    int64_t tokens = 0;  // that are to be computed
  };
  Prompts PromptsDueBy(MonoTime deadline, int priority) const;

 private:
  using Key = std::pair<MonoTime, uint64_t>;  // a time, the ticket
  template <typename T>
  using Allocator = std::pmr::polymorphic_allocator<T>;
  using Index = absl::btree_map<Key, WaitingSequence*, std::less<Key>,
                                Allocator<std::pair<const Key, WaitingSequence*>>>;

  Key OrderKey(const WaitingSequence& sequence) const {
    return {sequence.queued + (sequence.priority - 1) * priority_step_, sequence.ticket};
  }
  void EraseFromIndices(const WaitingSequence& sequence);
  // Counts in its next step, or out again.
  void AddStep(WaitingSequence* sequence);
  void EraseStep(const WaitingSequence& sequence);

  const nanoseconds priority_step_;
  std::pmr::unsynchronized_pool_resource nodes_;  // of the indices
  Index order_{Allocator<Index::value_type>(&nodes_)};
  Index deadlines_{Allocator<Index::value_type>(&nodes_)};  // finite ones only
  Index running_{Allocator<Index::value_type>(&nodes_)};
  absl::btree_set<Key, std::less<Key>, Allocator<Key>> arrivals_{Allocator<Key>(&nodes_)};
  int64_t tokens_ = 0;
  int64_t running_pages_ = 0;
};

}  // namespace sluice
