// Requests that wait outside the queue because their deadlines allow it.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "engine/schedule/admission.h"
#include "engine/schedule/due_totals.h"
#include "engine/schedule/finish_times.h"

namespace sluice {

// The callers with entries take turns, so that each gets the same device time (start-time fair
// queueing, as in FairOrder). While the backlog is not empty, a caller keeps its place in the turns
// even if its last entry is taken. A less urgent level is `priority_step` later. Within a caller's
// turn, the earliest deadline is first. Every operation is O(log n) amortised. Not thread-safe.
class Backlog {
 public:
  struct Entry {
    uint64_t id = 0;     // unique
    RequestLoad load{};  // of the request
    MonoTime deadline{};
    uint32_t caller = 0;  // see WaitingSequence
    int64_t rows = 1;     // of the request
    // The device time that it needs, in full batches, and the time to score its candidates.
    nanoseconds service{0};
    nanoseconds needed{0};  // the forecast from its place in the queue to its end
  };

  explicit Backlog(nanoseconds priority_step) : priority_step_(priority_step) {}

  // Requires that the entry's id is not present (CHECK).
  void Add(const Entry& entry, MonoTime now);
  // Removes the entry with this id without counting it as served, and returns it. Returns nullopt
  // if there is none.
  std::optional<Entry> Remove(uint64_t id);
  // Next returns the entry whose turn it is, and TakeNext removes it. Require an entry (CHECK).
  const Entry& Next() const;
  Entry TakeNext(MonoTime now);

  bool empty() const { return entries_.empty(); }
  int64_t rows() const { return rows_; }  // of all entries
  // Returns the earliest deadline of all entries, or MonoTime::max() if there are none. Earliest
  // returns the entry, and requires that there is one (CHECK).
  MonoTime EarliestDeadline() const {
    return empty() ? MonoTime::max() : deadlines_.begin()->first;
  }
  const Entry& Earliest() const { return entries_.at(deadlines_.begin()->second); }

  // Returns the time until a new entry would be taken: the device time of the entries ahead of it,
  // divided by the share of the device that the backlog has had recently. The entries ahead are at
  // most all entries, and at most the caller's own ones that are due earlier, once for each caller
  // with entries.
  nanoseconds TimeUntil(const Entry& entry, MonoTime now) const;

 private:
  using Key = DueTotals::Key;  // a deadline and the id
  struct Flow {
    absl::btree_set<Key> keys;
    DueTotals due;     // the service of its entries, in nanoseconds, as tokens
    MonoTime start{};  // virtual: the beginning of its next turn
  };

  // Returns the recent share of the device, 0 to about 1.
  double Share(MonoTime now) const;
  void Erase(const Entry& entry);
  MonoTime Place(const FlowKey& key, const Flow& flow) const {
    return flow.start + (key.second - 1) * priority_step_;
  }

  const nanoseconds priority_step_;
  absl::flat_hash_map<uint64_t, Entry> entries_;
  absl::btree_set<Key> deadlines_;
  absl::flat_hash_map<FlowKey, Flow> flows_;  // flows with entries
  FinishTimes finish_times_;                  // of flows without entries
  absl::btree_set<std::pair<MonoTime, FlowKey>> turns_;
  MonoTime virtual_now_{};  // the start of the turn that was taken last
  nanoseconds service_{0};  // of all entries
  int64_t rows_ = 0;
  // The share of the device at `shared_at_`: a decayed mean. It begins at 1 with the first entry.
  double share_ = 1;
  MonoTime shared_at_{};
};

}  // namespace sluice
