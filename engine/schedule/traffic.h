// What arrived and what ran lately, as the ladder's reviews see it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "engine/bucket.h"
#include "engine/schedule/batch_former.h"
#include "engine/schedule/decayed_counts.h"

namespace sluice {

// Exact counts by token count, decayed by half-life. A copy is a snapshot. Not thread-safe.
class DecayedHistogram {
 public:
  explicit DecayedHistogram(nanoseconds half_life) : counts_(half_life) {}

  // O(log n). A `now` before the latest counts as the latest.
  void Add(int32_t tokens, MonoTime now) { counts_.Add(tokens, now); }

  struct Entry {
    int32_t tokens;
    double weight;  // as of the latest Add
  };
  std::vector<Entry> Entries() const;  // ascending in tokens
  double total() const { return counts_.total(); }
  // Of the shares, in bits; 0 when empty.
  double Entropy() const;

 private:
  DecayedCounts<int32_t> counts_;
};

// An arrival as far as scheduling cares.
struct Arrival {
  MonoTime at{};
  int32_t tokens = 0;  // that its first step computes
  int32_t steps = 1;   // step batches that it takes part in; see VirtualRun
  int priority = kDefaultPriority;
  MonoTime deadline = MonoTime::max();

  bool operator==(const Arrival&) const = default;
};

// Bounded memory of the traffic: histograms of sequence lengths and of batch totals, the latest
// arrivals, their rate. Copied under the runner's lock, read in the background. Recording is O(log n)
// of the distinct sizes, and allocates only for a size that it does not know.
class Traffic {
 public:
  static constexpr size_t kRecentArrivals = 8192;

  explicit Traffic(nanoseconds half_life);

  void OnArrival(const Arrival& arrival);
  void OnBatch(const BatchSize& size, const Bucket& bucket, MonoTime now);

  const DecayedHistogram& lengths() const { return lengths_; }
  const DecayedHistogram& batch_tokens() const { return batch_tokens_; }
  // Decayed count of batches per bucket used, by ascending bucket, and their sum.
  double Usage(const Bucket& bucket) const { return usage_.Count(bucket); }
  double TotalUsage() const { return usage_.total(); }
  // At most kRecentArrivals, oldest first.
  std::vector<Arrival> RecentArrivals() const;
  // Of the latest kRateArrivals, over the time since the first of them, which does not count itself;
  // all 0 while that is no time.
  ArrivalRate Rate(MonoTime now) const;

 private:
  static constexpr size_t kRateArrivals = 256;

  // The arrival `back` before the latest.
  const Arrival& Recent(size_t back) const;
  size_t RateWindow() const { return std::min(recent_.size(), kRateArrivals); }

  DecayedHistogram lengths_;
  DecayedHistogram batch_tokens_;
  DecayedCounts<Bucket> usage_;
  std::vector<Arrival> recent_;  // a ring once it is full
  size_t next_ = 0;              // where the next arrival goes
  int64_t rate_tokens_ = 0;      // of the latest kRateArrivals
};

}  // namespace sluice
