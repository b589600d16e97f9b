// The recent arrivals and batches, as reviews of the ladder see them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "engine/bucket.h"
#include "engine/schedule/batch_former.h"
#include "engine/schedule/decayed_counts.h"
#include "engine/schedule_values.h"

namespace sluice {

// Exact counts by token count, decayed by half-life. A copy is a snapshot. Not thread-safe.
class DecayedHistogram {
 public:
  explicit DecayedHistogram(nanoseconds half_life) : counts_(half_life) {}

  // Counts one occurrence. A `now` before the latest one counts as the latest. O(log n).
  void Add(int32_t tokens, MonoTime now) { counts_.Add(tokens, now); }

  using Entry = TokenWeight;
  std::vector<Entry> Entries() const;  // ascending in tokens
  double total() const { return counts_.total(); }
  // The Shannon entropy of the shares, in bits; 0 when empty.
  double Entropy() const;

 private:
  DecayedCounts<int32_t> counts_;
};

// The facts of an arrival that scheduling depends on.
struct Arrival {
  MonoTime at{};
  int32_t tokens = 0;  // tokens of its first step
  int32_t steps = 1;   // step batches that carry it; see RunVirtually
  int priority = kDefaultPriority;
  uint32_t caller = 0;  // see WaitingSequence
  MonoTime deadline = MonoTime::max();

  bool operator==(const Arrival&) const = default;
};

// A bounded memory of the traffic: histograms of sequence lengths and of batch totals, the latest
// arrivals, their rate. It is copied under the runner's lock and read in the background. Recording
// is O(log n) in the distinct sizes, and allocates only for a new size.
class Traffic {
 public:
  static constexpr size_t kRecentArrivals = 8192;

  explicit Traffic(nanoseconds half_life);

  void OnArrival(const Arrival& arrival);
  void OnBatch(const BatchSize& size, const Bucket& bucket, MonoTime now);

  const DecayedHistogram& lengths() const { return lengths_; }
  const DecayedHistogram& batch_tokens() const { return batch_tokens_; }
  // The decayed count of batches that used a bucket, and the sum over all buckets.
  double Usage(const Bucket& bucket) const { return usage_.Count(bucket); }
  double TotalUsage() const { return usage_.total(); }
  // The latest arrivals, at most kRecentArrivals, oldest first.
  std::vector<Arrival> RecentArrivals() const;
  // The rate of the latest kRateArrivals over the time since the first of them, which does not
  // count itself; all 0 while no time has passed.
  ArrivalRate Rate(MonoTime now) const;

 private:
  static constexpr size_t kRateArrivals = 256;

  // Returns the arrival that came `back` before the latest.
  const Arrival& Recent(size_t back) const;
  size_t RateWindow() const { return std::min(recent_.size(), kRateArrivals); }

  DecayedHistogram lengths_;
  DecayedHistogram batch_tokens_;
  DecayedCounts<Bucket> usage_;
  std::vector<Arrival> recent_;  // a ring once it is full
  size_t next_ = 0;              // the index that the next arrival goes to
  int64_t rate_tokens_ = 0;      // tokens of the latest kRateArrivals
};

}  // namespace sluice
