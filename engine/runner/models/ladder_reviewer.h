// Reviews that keep a model's ladder fitted to its traffic.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/periodic_thread.h"
#include "engine/engine_stats.h"
#include "engine/observer.h"
#include "engine/options.h"
#include "engine/plans/ladder_file.h"
#include "engine/review/adaptive.h"
#include "engine/runner/models/later_plans.h"
#include "engine/runner/models/model_runner.h"

namespace sluice {

// Concurrency contract
//   * If the strategy or min_bucket_usage requires reviews and the policy has a choice of ladder, a
//     thread of low priority reviews the ladder every review.interval_us, unless nothing arrived
//     since the last review. Review and Choose may also be called from any thread. All of them run
//     one after another, and begin once all plans that were left for later are prepared.
//   * A review copies its inputs under the runner's lock, and decides and prepares plans without
//     it. The runner switches to the changed ladder when all of its plans are ready. Then the plans
//     that are no longer needed are withdrawn. While the plans of both ladders exist, they may
//     exceed memory_limit_bytes.
//
// Lock order: turn_mu_, then file_mu_, then the runner's or the plan cache's lock. No other lock is
// taken under mu_.
class LadderReviewer {
 public:
  // Nothing is owned; all pointers outlive the reviewer. Without a `file` no file is written, and
  // with one nothing is written before StartWriting.
  // Requires that `kept`, the choice in the file, can be applied to the options.
  LadderReviewer(ModelRunner* runner, LaterPlans* later_plans, const EngineOptions& options,
                 std::optional<LadderFile> file, LadderChoice kept, Clock* clock,
                 Observer* observer);
  // Waits for a review in progress, and writes the ladder and the costs to the file.
  ~LadderReviewer();

  // HandOver writes the file for a reviewer that is about to read it. No later change of the ladder
  // is written until StartWriting, and Choose does not keep any.
  void StartWriting();
  void HandOver();

  // Reviews the ladder, and returns once a changed ladder is in use or none was found. Returns
  // FailedPrecondition for a policy whose ladder is fixed.
  absl::StatusOr<ReviewReport> Review(bool force);

  // See Engine::ChooseLadder and Engine::TryStrategies.
  absl::StatusOr<ReviewReport> Choose(const LadderChoice& choice, bool keep);
  absl::StatusOr<StrategyTrials> TryStrategies() const;

  // Sets the fields of the statistics about reviews and the choice.
  void Describe(ModelStats* stats) const;

 private:
  LadderOptions ladder_options() const;
  // Whether the current options require reviews.
  bool ReviewsByItself() const;
  // Starts the thread if reviews are required and it is not running.
  void StartReviews() ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_mu_);
  // Reviews the ladder if anything has arrived since the last review.
  void ReviewNewArrivals();
  // Switches to the review's ladder, if there is one. If a plan cannot be prepared, returns the
  // error and changes nothing.
  absl::Status Adopt(const ModelRunner::ReviewState& state, LadderReview review,
                     ReviewReport* report);
  // Prepares the plans of `ladder` that are missing in `present`. After an error, withdraws them
  // again.
  absl::Status Prepare(const Ladder& present, const Ladder& ladder);
  void Withdraw(const Ladder& former, const Ladder& ladder);
  void Count(const ReviewReport& report, int64_t evicted);
  // Writes the file, if there is one. Reports an error to the observer, too. Returns
  // FailedPrecondition if the file is not this reviewer's to write.
  absl::Status Save();
  absl::Status SaveLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(file_mu_);

  ModelRunner* const runner_;
  LaterPlans* const later_plans_;
  const EngineOptions options_;
  const std::optional<LadderFile> file_;
  Clock* const clock_;
  Observer* const observer_;

  Mutex turn_mu_;  // held for a whole review

  Mutex file_mu_;  // held while the file is written
  bool writes_ ABSL_GUARDED_BY(file_mu_) = false;

  mutable Mutex mu_;
  LadderChanges changes_ ABSL_GUARDED_BY(mu_);
  LadderOptions ladder_ ABSL_GUARDED_BY(mu_);  // the options in effect
  LadderChoice kept_ ABSL_GUARDED_BY(mu_);     // the choice that the file keeps

  uint64_t reviewed_arrivals_ = 0;  // used by the thread
  // Set under turn_mu_. Last member: starts when everything else is built.
  std::optional<PeriodicThread> thread_;
};

}  // namespace sluice
