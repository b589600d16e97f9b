// The prepared plans of one model on one device: on CUDA, captured graphs.
//
// Warm-up and reviews of the ladder prepare plans. A review withdraws the plans of the buckets that
// it drops.
//
// Concurrency contract
//   * All methods are thread-safe; a Reader belongs to one thread.
//   * Plans are prepared one at a time, on the calling thread, and published by replacing an
//     immutable snapshot. A lookup costs one atomic load and a binary search. Only the first lookup
//     after a publication takes the lock, to fetch the new snapshot.
//   * A withdrawn plan is destroyed when the last Reader whose snapshot contains it looks up or
//     refreshes again, so not before the end of a replay that uses it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
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

// The counts of the batches that the plan of one bucket served. They outlive the plan and continue
// with the next plan for the same bucket.
class BucketUse {
 public:
  // Called by one thread.
  void Record(const BatchTrace& batch);
  // Counts a step that ran in another bucket because this bucket's plan was not ready yet.
  void CountLookup() { awaited_lookups_.fetch_add(1, std::memory_order_relaxed); }
  int64_t awaited_lookups() const { return awaited_lookups_.load(std::memory_order_relaxed); }
  // Returns the counts; the other fields have their defaults.
  BucketStats Stats(const Bucket& bucket) const;

 private:
  std::array<std::atomic<int64_t>, kLookups> lookups_{};  // batches by the result of the lookup
  std::array<std::atomic<int64_t>, kReplayBounds.size() + 1> replays_{};
  std::atomic<int64_t> replay_ns_{0};
  std::atomic<int64_t> useful_tokens_{0};
  std::atomic<int64_t> computed_tokens_{0};
  std::atomic<int64_t> sequences_{0};
  std::atomic<int64_t> awaited_lookups_{0};
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
    std::vector<std::shared_ptr<const CachedPlan>> plans;                // ascending by bucket
    std::vector<Bucket> withdrawn;                                       // ascending
    std::vector<std::pair<Bucket, std::shared_ptr<BucketUse>>> awaited;  // ascending
  };

 public:
  // The number of withdrawn buckets whose history is kept, which limits the series of a model in
  // /metrics. Above it, the least recently used bucket is forgotten.
  static constexpr size_t kMaxWithdrawn = 64;

  // The arguments are not owned and outlive the cache.
  PlanCache(const Model* model, const ExecutableModel* executable, Clock* clock,
            Observer* observer);

  // Prepares the bucket's plan, unless there is one, and publishes it. Returns the backend's error
  // if that fails. A failed preparation is tried again only if it failed for lack of memory. Memory
  // may have been freed since then.
  absl::Status Prepare(const Bucket& bucket);

  // Publishes an eager plan (Plan::eager), which needs no preparation, for a required bucket. It is
  // used until Prepare succeeds.
  absl::Status PublishEager(const Bucket& bucket);

  // Announces plans that will be prepared later. Lookups of such a bucket are counted until its
  // plan is prepared. Requires that the cache has no entry for any of them.
  void Await(std::span<const Bucket> buckets);
  std::vector<Bucket> Awaited() const;  // ascending
  // Returns the awaited bucket with the most lookups, the smallest one if several are equal, or
  // nullopt if no bucket is awaited.
  std::optional<Bucket> MostRequested() const;

  // Withdraws a published plan, or a bucket that is awaited or whose preparation failed. A reader
  // that found the plan may use it until its next lookup.
  void Withdraw(const Bucket& bucket);

  // Returns the statistics of all buckets that ever had an entry (see kMaxWithdrawn), ascending;
  // buckets without a plan are not ready. The fields that come from the scheduler, in_ladder and
  // cost_seconds, have their defaults.
  // If `forgotten` is not nullptr, sets it to the sums of the counts of all forgotten buckets.
  std::vector<BucketStats> Stats(BucketStats* forgotten = nullptr) const;
  const Model& model() const { return *model_; }
  int64_t memory_bytes() const;  // of the published plans
  // Returns the memory of the published plans plus a slot for the largest of them.
  int64_t ladder_bytes() const;

  struct Found {
    // nullptr if no plan fits the step. Valid until the reader's next call.
    const CachedPlan* plan = nullptr;
    Lookup lookup = Lookup::kMissOverCapacity;
  };

  class Reader {
   public:
    explicit Reader(const PlanCache* cache) : cache_(cache) {}

    // The cost of the step in a bucket, in any unit.
    using Cost = absl::FunctionRef<double(const Bucket&)>;

    // Returns the plan of `wanted`. If there is none, or it does not accept the step, returns the
    // cheapest plan by `cost` among the other plans that accept the step and whose bucket it fits;
    // the smallest one if several are equal.
    Found Find(const Bucket& wanted, const StepNeeds& needs, Cost cost = TokensOf);

    // Returns whether plans were published or withdrawn since this reader's last call.
    bool stale() const { return cache_->version_.load(std::memory_order_acquire) != version_; }
    // Releases withdrawn plans without a lookup.
    void Refresh();

   private:
    static double TokensOf(const Bucket& bucket) { return bucket.tokens; }

    Found Fallback(const StepNeeds& needs, Cost cost, Lookup miss) const;

    const PlanCache* const cache_;
    uint64_t version_ = 0;
    std::shared_ptr<const Snapshot> snapshot_;
  };

 private:
  // The state of a bucket: awaited, ready, failed (`status` is the error; a plan, if any, is
  // eager), or withdrawn (neither plan nor error).
  struct Entry {
    absl::Status status;
    std::shared_ptr<const CachedPlan> plan;
    std::shared_ptr<BucketUse> use = std::make_shared<BucketUse>();
    nanoseconds prepare_time{0};
    int64_t activation_bytes = 0;
    bool awaited = false;

    bool withdrawn() const { return plan == nullptr && status.ok() && !awaited; }
  };

  // Returns the outcome for the bucket if it is known, or FailedPrecondition if the bucket must be
  // prepared.
  absl::Status Known(const Bucket& bucket) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Like Stats, without exact_activation_bytes.
  std::vector<BucketStats> Counts(BucketStats* forgotten) const;
  void ForgetLongestUnused() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Model* const model_;
  const ExecutableModel* const executable_;
  Clock* const clock_;
  Observer* const observer_;

  // The number of publications. Written under mu_ and read without it.
  std::atomic<uint64_t> version_{0};

  Mutex prepare_mu_;  // one preparation at a time; taken before mu_
  mutable Mutex mu_;
  absl::btree_map<Bucket, Entry> entries_ ABSL_GUARDED_BY(mu_);
  BucketStats forgotten_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const Snapshot> snapshot_ ABSL_GUARDED_BY(mu_) = std::make_shared<Snapshot>();
};

}  // namespace sluice
