// The turns that callers have had, for start-time fair queueing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"

namespace sluice {

// The flow of a caller (see WaitingSequence) at a priority level.
using FlowKey = std::pair<uint32_t, int>;

// The virtual time at which the latest turn of each flow ends. The virtual clock never goes back. A
// time that it has reached has no effect and is forgotten later. At most kMaxFlows times are kept.
// If more than half of this number are ahead of the clock, all are forgotten, and each of their
// flows may be served once too early. Not thread-safe.
class FinishTimes {
 public:
  static constexpr size_t kMaxFlows = 1 << 15;

  // Returns the beginning of the next turn of a flow that begins at `now` at the earliest.
  MonoTime StartOf(const FlowKey& flow, MonoTime now) const {
    const auto it = times_.find(flow);
    return it == times_.end() ? now : std::max(now, it->second);
  }

  // Sets the end of the latest turn of a flow. `now` is the time of the virtual clock. Takes O(1)
  // amortised.
  void Set(const FlowKey& flow, MonoTime finish, MonoTime now) {
    if (times_.size() >= prune_at_) Prune(now);
    times_[flow] = finish;
  }

  // Forgets all turns.
  void Clear() { times_.clear(); }

  size_t size() const { return times_.size(); }

 private:
  static constexpr size_t kFewFlows = 1024;

  void Prune(MonoTime now) {
    absl::erase_if(times_, [now](const auto& entry) { return entry.second <= now; });
    if (times_.size() > kMaxFlows / 2) times_.clear();
    prune_at_ = std::max(2 * times_.size(), kFewFlows);
  }

  absl::flat_hash_map<FlowKey, MonoTime> times_;
  size_t prune_at_ = kFewFlows;
};

}  // namespace sluice
