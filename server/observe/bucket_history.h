// The last hours of each model: its ladder, the arriving lengths, and the counts of its batches by
// bucket.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/engine_stats.h"
#include "server/observe/bucket_summary.h"
#include "server/observe/recent_activity.h"

namespace sluice {

// The counts of one bucket in an interval.
struct BucketCounts {
  Bucket bucket;
  BatchCounts counts;
};

// An interval of time: the sums over its batches, and the lengths and the ladder at its end.
struct HistoryStretch {
  MonoTime begin{}, end{};
  BatchCounts all{};
  std::vector<BucketCounts> buckets{};  // ascending; without buckets that had no batch
  // Quantiles of the decayed lengths, as the ladder is fitted to them; 0 if nothing has arrived.
  int32_t length_p50 = 0, length_p90 = 0, length_p99 = 0;
  // Ascending. Intervals with the same ladder share the object.
  std::shared_ptr<const std::vector<Bucket>> ladder;
};

// Returns the sums over the intervals, with the lengths and the ladder of the last one. Requires at
// least one interval, in the order of time.
HistoryStretch Joined(std::span<const HistoryStretch> stretches);

// Returns the sums over the intervals of `stretches` that ended less than an hour before `now`, so
// up to the last hour and a minute; without intervals, an empty interval at `now`. `stretches` is a
// result of BucketHistory::Of.
HistoryStretch LastHour(std::span<const HistoryStretch> stretches, MonoTime now);

// Thread-safe. Its memory is limited to kStretches intervals per model, with the buckets that were
// used in each, and their ladders.
class BucketHistory {
 public:
  static constexpr std::chrono::minutes kInterval{1};
  static constexpr size_t kStretches = 240;

  // Ends the current interval of each served model and drops the models that are not in `served`.
  // The first call for a model starts its first interval.
  void Add(std::span<const ModelStats> served, MonoTime now);

  // Returns the intervals of the model, the earliest first and the current one last. Returns none
  // if the model has not been added yet.
  std::vector<HistoryStretch> Of(const ModelStats& stats, MonoTime now) const;

 private:
  // The engine's counts at the start of the current interval.
  struct Counted {
    MonoTime at{};
    int64_t steps = 0;
    BatchCounts all{};                    // with the forgotten buckets
    std::vector<BucketCounts> buckets{};  // ascending
  };
  struct OfModel {
    Counted begin;
    Ring<HistoryStretch, kStretches> ended;
    std::shared_ptr<const std::vector<Bucket>> ladder;  // the latest one
  };
  using Key = std::pair<std::string, int64_t>;  // name and version

  static Counted CountedIn(const ModelStats& stats, MonoTime now);
  static HistoryStretch StretchOf(const OfModel& model, const ModelStats& stats, MonoTime now);

  mutable Mutex mu_;
  std::map<Key, OfModel> models_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
