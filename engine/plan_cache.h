// The prepared plans of one model on one device.
//
// Concurrency contract
//   * All methods are thread-safe; a Reader belongs to one thread.
//   * Plans are prepared one at a time on the cache's own thread and published by replacing an
//     immutable snapshot. A lookup costs one atomic load and a binary search; only the first lookup
//     after a publication takes the lock, to fetch the new snapshot.
//   * A plan lives as long as the cache, or a snapshot that holds it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "engine/backend.h"
#include "engine/clock.h"
#include "engine/engine.h"
#include "engine/mutex.h"
#include "engine/observer.h"

namespace sluice {

// A published plan with the record of its use.
class CachedPlan {
 public:
  explicit CachedPlan(std::unique_ptr<const Plan> plan) : plan_(std::move(plan)) {}

  const Plan& plan() const { return *plan_; }

  // One batch that this plan served. Called by one thread.
  void Record(const BatchTrace& batch);
  BucketStats Stats() const;

 private:
  const std::unique_ptr<const Plan> plan_;
  std::atomic<int64_t> batches_{0};
  std::atomic<int64_t> hits_{0};
  std::atomic<int64_t> useful_tokens_{0};
  std::atomic<int64_t> computed_tokens_{0};
  std::atomic<int64_t> sequences_{0};
};

class PlanCache {
 private:
  using Snapshot = std::vector<std::shared_ptr<CachedPlan>>;  // ascending by bucket

 public:
  // Nothing is owned; all outlive the cache.
  PlanCache(const Model* model, const ExecutableModel* executable, Clock* clock,
            Observer* observer);
  // Waits for the preparation that is under way.
  ~PlanCache();

  // Prepares the bucket's plan, unless that has been asked for before, and waits for its
  // publication. The backend's error when there is none.
  absl::Status Prepare(const Bucket& bucket);

  // The same without waiting. Failed preparations are not tried again.
  void PrepareLater(const Bucket& bucket);

  // Withdraws a plan. Readers that found it may use it until their next lookup.
  void Remove(const Bucket& bucket);

  // Of all buckets asked for, ascending; those without a plan are not ready.
  std::vector<BucketStats> Stats() const;
  int64_t memory_bytes() const;  // of the published plans

  struct Found {
    CachedPlan* plan = nullptr;  // nullptr: over capacity. Valid until the reader's next lookup
    Lookup lookup = Lookup::kMissOverCapacity;
  };

  class Reader {
   public:
    explicit Reader(const PlanCache* cache) : cache_(cache) {}
    // The plan of `wanted` or, while that is not ready, of the next larger bucket that is.
    Found Find(const Bucket& wanted);

   private:
    const PlanCache* const cache_;
    uint64_t version_ = 0;
    std::shared_ptr<const Snapshot> snapshot_;
  };

 private:
  struct Preparation {
    bool done = false;
    absl::Status status;
    std::shared_ptr<CachedPlan> plan;
  };

  void Run();
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Model* const model_;
  const ExecutableModel* const executable_;
  Clock* const clock_;
  Observer* const observer_;

  // Counts publications; changes under mu_, read without.
  std::atomic<uint64_t> version_{0};

  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Bucket> requested_ ABSL_GUARDED_BY(mu_);
  absl::btree_map<Bucket, Preparation> preparations_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const Snapshot> snapshot_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;  // last: starts when all else is built
};

}  // namespace sluice
