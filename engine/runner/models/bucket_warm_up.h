// Prepares and times the plans of a ladder before its model serves.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/ladder/ladder.h"
#include "engine/observer.h"
#include "engine/options.h"
#include "engine/runner/steps/prepared_model.h"

namespace sluice {

// How a step is timed.
struct StepBenchmark {
  int32_t runs;                           // the median is used; 0: not timed
  std::chrono::milliseconds warm_for{0};  // untimed runs before that; at least one
};

// Prepares and times the buckets of a ladder within a time limit.
class BucketWarmUp {
 public:
  // Nothing is owned.
  BucketWarmUp(const std::shared_ptr<const Model>& model, const LadderOptions& options,
               const StepBenchmark& benchmark, Clock* clock, Observer* observer,
               PreparedModel* prepared)
      : model_(model),
        benchmark_(benchmark),
        clock_(clock),
        observer_(observer),
        prepared_(prepared),
        end_(clock->Now() + std::chrono::microseconds(options.warm_up_us)) {}

  // Prepares the maximum, without a captured plan if there is no memory for it.
  absl::Status PrepareLargest(const Bucket& largest);

  // Prepares and times the buckets below the maximum in ascending order, and times the maximum,
  // which must be prepared, last. If the costs are `known`, only the smallest steps of a packed
  // ladder are timed. Stops when the time is over, the memory limit is reached (0: none) or the
  // device has no memory left. Buckets without time are awaited. Buckets without memory are not in
  // the returned ladder; those excluded by the limit count as evicted.
  absl::StatusOr<Ladder> Run(const Ladder& wanted, bool known, int64_t limit_bytes);

 private:
  // The number of tokens timed first, in any bucket.
  static constexpr int32_t kFirstTokens = 16;

  // Used when a padded ladder was cut within a column. Withdraws its last buckets until the rest
  // and the largest bucket form a ladder: a column has at least the rows of wider columns.
  void LeaveWholeColumns(const Bucket& largest, std::vector<Bucket>* kept);

  // Returns false if there is not enough memory for the plan.
  absl::StatusOr<bool> Prepare(const Bucket& bucket);

  // Times a step with the bucket's capacity in tokens. First times smaller steps, in powers of two,
  // and continues only if they are fast enough.
  absl::Status Time(const Bucket& bucket, bool whole);

  bool HasTime(const Bucket& bucket) const {
    return timed_ == 0 || (known_ ? clock_->Now() < end_ : HasTimeFor(bucket.tokens));
  }
  // Returns whether timing these tokens is likely to finish in time, judged by the latest
  // measurement.
  bool HasTimeFor(int32_t tokens) const { return clock_->Now() + took_ / timed_ * tokens < end_; }

  const std::shared_ptr<const Model>& model_;
  int64_t limit_bytes_ = 0;
  const StepBenchmark benchmark_;
  bool known_ = false;
  Clock* const clock_;
  Observer* const observer_;
  PreparedModel* const prepared_;
  const MonoTime end_;
  bool over_limit_ = false;
  int32_t timed_ = 0;    // tokens of the latest measurement
  nanoseconds took_{0};  // duration of the latest measurement
};

}  // namespace sluice
