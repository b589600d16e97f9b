// The waiting sequences, in the order in which they should run.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory_resource>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "base/clock.h"
#include "engine/schedule/due_totals.h"
#include "engine/schedule/sequence.h"
#include "engine/schedule_values.h"

namespace sluice {

// A queue ordered by arrival plus `deferred`, then by ticket. Each priority level below the first
// adds `priority_step` to the arrival, so that a stream of urgent requests cannot starve the
// others. Owns nothing: a sequence must exist until it has left the queue. Not thread-safe. Push
// and Remove are O(log n), and allocate only if the queue is longer than ever before.
class SequenceQueue {
 public:
  explicit SequenceQueue(nanoseconds priority_step) : priority_step_(priority_step) {}

  // Queues a sequence and sets its `overtaken` to 0.
  void Push(WaitingSequence* sequence);
  // Removes a sequence that is cancelled or has expired. It does not count as overtaking others.
  // Requires that it is queued.
  void Remove(const WaitingSequence* sequence);
  // Removes sequences that run now. Each counts as overtaking every sequence ahead of it that
  // stays. Requires that all are queued, and given in queue order. O(log n) for each of them, and
  // O(1) for each queued sequence ahead of the last of them.
  void Take(std::span<WaitingSequence* const> sequences);

  // Replaces the next step of a queued sequence. Its place and `overtaken` are unchanged.
  void Revise(WaitingSequence* sequence, const NextStep& next);

  // Replaces `out` by the running sequences, in order.
  void Running(std::vector<WaitingSequence*>* out) const;
  // Returns the last running sequence in order, or nullptr.
  WaitingSequence* LastRunning() const;
  int64_t running() const { return std::ssize(running_); }
  int64_t running_pages() const { return running_pages_; }  // pages that their next steps need

  // Returns the first sequence in order, or nullptr.
  const WaitingSequence* First() const { return empty() ? nullptr : order_.begin()->second; }
  // Replaces `out` by the first sequences in order, at most `count`.
  void Front(size_t count, std::vector<WaitingSequence*>* out) const;
  // Replaces `out` by the sequences with a deadline at or before `until`, at most `count`, the
  // earliest deadline first.
  void Urgent(MonoTime until, size_t count, std::vector<WaitingSequence*>* out) const;
  // Returns whether `a` is ahead of `b` in the order.
  bool Before(const WaitingSequence& a, const WaitingSequence& b) const;

  // Returns the earliest deadline, or MonoTime::max() if no queued sequence has one.
  MonoTime EarliestDeadline() const;
  // Returns the sequence with the earliest deadline if that is at or before `now`, else nullptr.
  WaitingSequence* Expired(MonoTime now) const;

  // Returns the earliest arrival, or MonoTime::max() if the queue is empty.
  MonoTime OldestArrival() const;
  // Returns the earliest arrival of the sequences that are not running, or MonoTime::max().
  MonoTime OldestWaiting() const;

  bool empty() const { return order_.empty(); }
  int64_t size() const { return std::ssize(order_); }
  int64_t tokens() const { return tokens_; }
  // Returns the expected number of steps after the prompts of the sequences that have not begun.
  int64_t later_steps() const { return later_steps_; }

  // Returns the total of queued prompts that have not begun, are due at or before `deadline` and
  // have `priority` or a more urgent level. Only tokens that must still be computed count. O(log
  // n).
  DueTotals::Total PromptsDueBy(MonoTime deadline, int priority) const;
  // Returns the total of all queued prompts that have not begun.
  DueTotals::Total Prompts() const { return fresh_.DueBy(MonoTime::max()); }
  // Returns the total of queued prompts that have not begun and are ahead of a new sequence with
  // this place in the order (FairOrder::PlaceOf) and level. O(log n).
  DueTotals::Total PromptsAhead(MonoTime place, int priority) const {
    return fresh_.DueBy(place + (priority - 1) * priority_step_);
  }

 private:
  using Key = std::pair<MonoTime, uint64_t>;  // a time and the ticket
  template <typename T>
  using Allocator = std::pmr::polymorphic_allocator<T>;
  using Index = absl::btree_map<Key, WaitingSequence*, std::less<Key>,
                                Allocator<std::pair<const Key, WaitingSequence*>>>;
  using Arrivals = absl::btree_set<Key, std::less<Key>, Allocator<Key>>;

  Key OrderKey(const WaitingSequence& sequence) const {
    const MonoTime arrival = sequence.queued + sequence.deferred;
    return {arrival + (sequence.priority - 1) * priority_step_, sequence.ticket};
  }
  void EraseFromIndices(const WaitingSequence& sequence);
  // Adds the sequence's next step to the totals, or subtracts it.
  void AddStep(WaitingSequence* sequence);
  void EraseStep(const WaitingSequence& sequence);

  const nanoseconds priority_step_;
  std::pmr::unsynchronized_pool_resource nodes_;  // of the indices
  Index order_{Allocator<Index::value_type>(&nodes_)};
  Index deadlines_{Allocator<Index::value_type>(&nodes_)};  // finite ones only
  Index running_{Allocator<Index::value_type>(&nodes_)};
  Arrivals arrivals_{Allocator<Key>(&nodes_)};
  Arrivals waiting_arrivals_{Allocator<Key>(&nodes_)};  // of sequences that are not running
  std::array<DueTotals, kPriorityLevels> due_;          // of prompts that have not begun, by level
  int64_t tokens_ = 0;
  DueTotals fresh_;  // the prompts that have not begun, by their places in the order
  int64_t later_steps_ = 0;
  int64_t running_pages_ = 0;
};

}  // namespace sluice
