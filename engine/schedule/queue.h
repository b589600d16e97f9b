// What waits to be computed, in the order in which it is to be computed.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "engine/clock.h"
#include "engine/options.h"
#include "engine/request.h"

namespace sluice {

// One row of a request: the unit that is queued and grouped. Rows of one request may run in
// different batches. Fields do not change while it is queued.
struct WaitingSequence {
  uint64_t ticket = 0;  // of its arrival; unique. It keeps this when it comes back for another step
  int priority = kDefaultPriority;  // 1 is the most urgent
  int32_t tokens = 0;               // that its next step computes
  MonoTime queued{};                // arrival
  MonoTime deadline = MonoTime::max();
};

// Ordered by priority, then ticket. Owns nothing: a sequence outlives its stay. Not thread-safe.
// Every operation is O(log n) for each sequence that it touches.
class SequenceQueue {
 public:
  void Push(WaitingSequence* sequence);
  // It must be queued.
  void Remove(const WaitingSequence* sequence);

  // Replaces `out` by the first sequences in order, at most `count`.
  void Front(size_t count, std::vector<WaitingSequence*>* out) const;

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

 private:
  using OrderKey = std::pair<int, uint64_t>;          // priority, ticket
  using DeadlineKey = std::pair<MonoTime, uint64_t>;  // deadline, ticket

  absl::btree_map<OrderKey, WaitingSequence*> order_;
  absl::btree_map<DeadlineKey, WaitingSequence*> deadlines_;  // finite ones only
  int64_t tokens_ = 0;
};

// The bound of the queue: requests that wait or run, and their tokens, each row's max_tokens
// included. Not thread-safe.
class AdmissionBudget {
 public:
  explicit AdmissionBudget(const QueueOptions& options) : options_(options) {}

  // ResourceExhausted names the bound that would be exceeded; nothing is taken then.
  absl::Status Take(int64_t tokens);
  void Return(int64_t tokens);

  int64_t requests() const { return requests_; }

 private:
  const QueueOptions options_;
  int64_t requests_ = 0;
  int64_t tokens_ = 0;
};

}  // namespace sluice
