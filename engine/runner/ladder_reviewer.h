// The reviews that keep a model's ladder fitted to its traffic.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/periodic_thread.h"
#include "engine/engine_stats.h"
#include "engine/observer.h"
#include "engine/options.h"
#include "engine/plans/ladder_file.h"
#include "engine/runner/later_plans.h"
#include "engine/runner/model_runner.h"

namespace sluice {

// Concurrency contract
//   * If the strategy or min_bucket_usage asks for reviews and the layout is packed, a thread of
//     low priority reviews the ladder every review.interval_us, unless nothing arrived since the
//     last review. Review may be called from any thread besides. Reviews run one after another.
//   * Reviews begin once the plans that the model was ready without are prepared.
//   * A review copies its inputs under the runner's lock, and decides and prepares plans without
//     it. Only when every plan of the changed ladder is ready does the runner switch to it; then
//     the plans that are no longer needed are withdrawn. While the plans of both ladders exist
//     they may exceed memory_limit_bytes.
//
// Lock order: turn_mu_, then the runner's or the plan cache's; no other lock is taken under mu_.
class LadderReviewer {
 public:
  // Nothing is owned; all outlive the reviewer. Without a `file` no file is written.
  LadderReviewer(ModelRunner* runner, LaterPlans* later_plans, const EngineOptions& options,
                 std::optional<LadderFile> file, Clock* clock, Observer* observer);
  // Waits for a review in progress, and writes the ladder and the costs to the file.
  ~LadderReviewer();

  // Reviews the ladder, and returns once a changed ladder is in use or none was found. Returns
  // FailedPrecondition for a padded policy.
  absl::StatusOr<OptimizeReport> Review(bool force);

  LadderChanges changes() const;

 private:
  // Reviews the ladder if anything has arrived since the last time.
  void ReviewNewArrivals();
  // Prepares the plans of `ladder` that `present` lacks; after an error, withdraws them again.
  absl::Status Prepare(const Ladder& present, const Ladder& ladder);
  void Withdraw(const Ladder& former, const Ladder& ladder);
  void Count(const OptimizeReport& report, int64_t evicted);
  void Save();

  ModelRunner* const runner_;
  LaterPlans* const later_plans_;
  const EngineOptions options_;
  const std::optional<LadderFile> file_;
  Clock* const clock_;
  Observer* const observer_;

  Mutex turn_mu_;  // held for a whole review

  mutable Mutex mu_;
  LadderChanges changes_ ABSL_GUARDED_BY(mu_);

  uint64_t reviewed_arrivals_ = 0;        // used by the thread
  std::optional<PeriodicThread> thread_;  // last: starts when all else is built
};

}  // namespace sluice
