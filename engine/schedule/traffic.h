// Records of recent arrivals and batches, for reviews of the ladder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/container/btree_map.h"
#include "base/clock.h"
#include "engine/bucket.h"
#include "engine/schedule/batch_former.h"
#include "engine/schedule_values.h"

namespace sluice {

// Exact counts by token count, decayed by half-life. The counts are not reduced at each Add.
// Instead, the amount added doubles per half-life since `origin_`. Every kRescaleHalfLives, all
// counts are scaled back, and counts that have decayed below kNothing are removed. This limits the
// memory to the sizes of the last few half-lives. A copy is a snapshot. Not thread-safe.
class DecayedHistogram {
 public:
  explicit DecayedHistogram(nanoseconds half_life) : half_life_(half_life) {}

  // Counts one occurrence. A `now` before the latest one is replaced by the latest one. O(log n).
  void Add(int32_t tokens, MonoTime now);

  // Counts are as of the latest Add.
  std::vector<TokenWeight> Entries() const;  // ascending in tokens
  double total() const { return scaled_total_ * Shrink(); }
  // The Shannon entropy of the shares, in bits; 0 when empty.
  double Entropy() const;

 private:
  // Returns the number of half-lives from the origin to `time`.
  double Age(MonoTime time) const;
  double Shrink() const;
  void Rescale();

  nanoseconds half_life_;
  absl::btree_map<int32_t, double> scaled_;  // counts * 2^(half-lives since origin_)
  double scaled_total_ = 0;
  MonoTime origin_{};
  MonoTime latest_{};
};

// The properties of an arrival that scheduling depends on.
struct Arrival {
  MonoTime at{};
  int32_t tokens = 0;  // to compute of its prompt, which counts as one step even in chunks
  int32_t steps = 1;   // step batches that carry it; see RunVirtually
  int priority = kDefaultPriority;
  uint32_t caller = 0;  // these two as in WaitingSequence
  uint64_t adapter = 0;
  MonoTime deadline = MonoTime::max();

  bool operator==(const Arrival&) const = default;
};

// A bounded record of the traffic: histograms of sequence lengths and batch totals, the latest
// arrivals and their rate. It is copied under the runner's lock and read in the background.
// Recording is O(log n) in the number of distinct sizes, and allocates only for a new size.
class Traffic {
 public:
  static constexpr size_t kRecentArrivals = 8192;

  explicit Traffic(nanoseconds half_life);

  void OnArrival(const Arrival& arrival);
  void OnBatch(const BatchSize& size, MonoTime now) { batch_tokens_.Add(size.tokens, now); }

  const DecayedHistogram& lengths() const { return lengths_; }
  const DecayedHistogram& batch_tokens() const { return batch_tokens_; }
  // The latest arrivals, at most kRecentArrivals, oldest first.
  std::vector<Arrival> RecentArrivals() const;
  // The rate of the latest kRateArrivals since the first of them, which is not counted; all 0 while
  // no time has passed.
  ArrivalRate Rate(MonoTime now) const;

 private:
  static constexpr size_t kRateArrivals = 256;

  // Returns the arrival `back` places before the latest arrival.
  const Arrival& Recent(size_t back) const;
  size_t RateWindow() const { return std::min(recent_.size(), kRateArrivals); }

  DecayedHistogram lengths_;
  DecayedHistogram batch_tokens_;
  std::vector<Arrival> recent_;  // a ring once it is full
  size_t next_ = 0;              // index of the next arrival
  int64_t rate_tokens_ = 0;      // tokens of the latest kRateArrivals
};

}  // namespace sluice
