// The last hours of each model's ladder, of the lengths that arrive, and of how well they fit.
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
#include "server/observe/recent_activity.h"

namespace sluice {

// A stretch of time: the sums of its batches, and the lengths and the ladder at its end.
struct HistoryStretch {
  MonoTime begin{}, end{};
  int64_t batches = 0, hits = 0;
  int64_t useful_tokens = 0, computed_tokens = 0, bucket_tokens = 0;
  // Quantiles of the decayed lengths, as the ladder is fitted to them; 0 if nothing has arrived.
  int32_t length_p50 = 0, length_p90 = 0, length_p99 = 0;
  // Ascending. Neighbours with the same ladder share it.
  std::shared_ptr<const std::vector<Bucket>> ladder;
};

// Thread-safe. Its memory is bounded: kStretches of a model, and their ladders.
class BucketHistory {
 public:
  static constexpr std::chrono::minutes kInterval{1};
  static constexpr size_t kStretches = 240;

  // Ends the present stretch of each served model and forgets the models that are not in `served`.
  // The first call for a model begins its first stretch.
  void Add(std::span<const ModelStats> served, MonoTime now);

  // Returns the stretches of the model, the earliest first, and the present one last. Returns none
  // for a model that was not added yet.
  std::vector<HistoryStretch> Of(const ModelStats& stats, MonoTime now) const;

 private:
  // What the engine had counted when the present stretch began.
  struct Counted {
    MonoTime at{};
    int64_t steps = 0, batches = 0, hits = 0;
    int64_t useful_tokens = 0, computed_tokens = 0, bucket_tokens = 0;
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
