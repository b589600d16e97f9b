// Times, ladders and queues for tests of the scheduler.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/bucket.h"
#include "engine/schedule/cost_model.h"
#include "engine/schedule/queue.h"

namespace sluice {

inline MonoTime AtMicroseconds(int64_t us) { return MonoTime(std::chrono::microseconds(us)); }

inline std::vector<int32_t> TokensOf(std::span<const Bucket> buckets) {
  std::vector<int32_t> tokens;
  for (const Bucket& bucket : buckets) tokens.push_back(bucket.tokens);
  return tokens;
}

// Returns the costs of a device whose steps all take a millisecond, so that drafted tokens cost
// nothing.
inline CostModel CostsOfEqualSteps() {
  CostState state{.rows = ComputedRows::OfBatch()};
  state.law[0] = 1e-3;
  CostModel costs;
  costs.Restore(state);
  return costs;
}

// A queue with the given sequences in the given order. Their tickets are their indices.
class FixedQueue {
 public:
  explicit FixedQueue(std::vector<WaitingSequence> waiting) : sequences_(std::move(waiting)) {
    for (size_t i = 0; i < sequences_.size(); ++i) {
      sequences_[i].ticket = i;
      const int32_t overtaken = sequences_[i].overtaken;
      queue_.Push(&sequences_[i]);
      sequences_[i].overtaken = overtaken;  // Push resets it
    }
  }

  const SequenceQueue& queue() const { return queue_; }

 private:
  std::vector<WaitingSequence> sequences_;
  SequenceQueue queue_{nanoseconds(0)};
};

}  // namespace sluice
