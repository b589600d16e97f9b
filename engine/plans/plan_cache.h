// The prepared plans of one model on one device.
//
// Concurrency contract
//   * All methods are thread-safe; a Reader belongs to one thread.
//   * Plans are prepared one at a time, on the thread that asks, and published by replacing
//     an immutable snapshot. A lookup costs one atomic load and a binary search; only the first
//     lookup after a publication takes the lock, to fetch the new snapshot.
//   * A plan that is withdrawn dies when the last Reader that holds a snapshot with it looks up or
//     refreshes again: not before the replay that uses it has ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "engine/backend.h"
#include "engine/engine_stats.h"
#include "engine/observer.h"

namespace sluice {

// What the batches that one bucket's plan served add up to. Outlives the plan, and goes on with the
// next one for the same bucket.
class BucketUse {
 public:
  // Called by one thread.
  void Record(const BatchTrace& batch);
  // The counts alone.
  BucketStats Stats(const Bucket& bucket) const;

 private:
  std::atomic<int64_t> batches_{0};
  std::atomic<int64_t> hits_{0};
  std::atomic<int64_t> useful_tokens_{0};
  std::atomic<int64_t> computed_tokens_{0};
  std::atomic<int64_t> sequences_{0};
  std::atomic<MonoTime::rep> last_used_{0};
};

// A published plan.
class CachedPlan {
 public:
  CachedPlan(std::unique_ptr<const Plan> plan, std::shared_ptr<BucketUse> use)
      : plan_(std::move(plan)), use_(std::move(use)) {}

  const Plan& plan() const { return *plan_; }
  BucketUse& use() const { return *use_; }

 private:
  const std::unique_ptr<const Plan> plan_;
  const std::shared_ptr<BucketUse> use_;
};

class PlanCache {
 private:
  struct Snapshot {
    std::vector<std::shared_ptr<const CachedPlan>> plans;  // ascending by bucket
    std::vector<Bucket> withdrawn;                         // ascending
  };

 public:
  // Withdrawn buckets whose history is kept; beyond, the longest unused is forgotten.
  static constexpr size_t kMostWithdrawn = 256;

  // Nothing is owned; all outlive the cache.
  PlanCache(const Model* model, const ExecutableModel* executable, Clock* clock,
            Observer* observer);

  // Prepares the bucket's plan, unless there is one, and publishes it. The backend's error when
  // there is none; a failed preparation is not tried again, but for one that memory did not suffice for:
  // it may since have been given back.
  absl::Status Prepare(const Bucket& bucket);

  // For a bucket that cannot be done without: publishes a plan that was not prepared, to be used until
  // Prepare succeeds.
  absl::Status PublishEager(const Bucket& bucket);

  // Withdraws a published plan. Readers that found it may use it until their next lookup.
  void Withdraw(const Bucket& bucket);

  // Of all buckets ever asked for (see kMostWithdrawn), ascending; those without a plan are not
  // ready. What only the scheduler knows is left alone: in_ladder and cost_seconds.
  std::vector<BucketStats> Stats() const;
  int64_t memory_bytes() const;  // of the published plans

  struct Found {
    const CachedPlan* plan = nullptr;  // nullptr: none serves. Valid until the reader's next call
    Lookup lookup = Lookup::kMissOverCapacity;
  };

  class Reader {
   public:
    explicit Reader(const PlanCache* cache) : cache_(cache) {}

    // What the step would take in a bucket, in any unit.
    using Cost = absl::FunctionRef<double(const Bucket&)>;

    // The plan of `wanted` or, where that is not to be had, of the others that the step fits and that
    // accept it the one of least `cost`; of equals the smallest.
    Found Find(const Bucket& wanted, const StepNeeds& needs, Cost cost = TokensOf);

    // Plans were published or withdrawn since the last call of this reader.
    bool stale() const { return cache_->version_.load(std::memory_order_acquire) != version_; }
    // Lets go of withdrawn plans without a lookup.
    void Refresh();

   private:
    static double TokensOf(const Bucket& bucket) { return bucket.tokens; }

    Found Fallback(const StepNeeds& needs, Cost cost, Lookup miss) const;

    const PlanCache* const cache_;
    uint64_t version_ = 0;
    std::shared_ptr<const Snapshot> snapshot_;
  };

 private:
  // A bucket that was asked for: ready, failed (status; what it has then is eager), or withdrawn (neither).
  struct Entry {
    absl::Status status;
    std::shared_ptr<const CachedPlan> plan;
    std::shared_ptr<BucketUse> use = std::make_shared<BucketUse>();
    nanoseconds prepare_time{0};

    bool withdrawn() const { return plan == nullptr && status.ok(); }
  };

  // What is known of the bucket; FailedPrecondition when it is to be prepared.
  absl::Status Known(const Bucket& bucket) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetLongestUnused() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Model* const model_;
  const ExecutableModel* const executable_;
  Clock* const clock_;
  Observer* const observer_;

  // Counts publications; changes under mu_, read without.
  std::atomic<uint64_t> version_{0};

  Mutex prepare_mu_;  // one preparation at a time; taken before mu_
  mutable Mutex mu_;
  absl::btree_map<Bucket, Entry> entries_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const Snapshot> snapshot_ ABSL_GUARDED_BY(mu_) = std::make_shared<Snapshot>();
};

}  // namespace sluice
