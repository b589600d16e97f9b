// Prepares the plans that were not ready when the model became ready.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "engine/observer.h"
#include "engine/runner/models/model_runner.h"

namespace sluice {

// Concurrency contract
//   * A thread of low priority prepares the runner's awaited plans one after another, each time the
//     plan that was looked up most, and ends. Until then, steps run in larger buckets. No review
//     may change the ladder before that; see Finish.
//   * Results have the same bits with any set of ready plans, because no result depends on the
//     bucket. Costs are not measured here but by the first steps in a bucket.
//   * A bucket whose plan cannot be prepared is removed from the ladder, with a notice. If the
//     device has no memory left or memory_limit_bytes is reached, all awaited buckets are removed.
class LaterPlans {
 public:
  // Neither pointer is owned; both outlive this. A limit of 0 means none.
  LaterPlans(ModelRunner* runner, int64_t memory_limit_bytes, Observer* observer);
  ~LaterPlans() { Stop(); }

  // Returns when no plan is awaited, or after Stop.
  void Finish();
  // Ends the thread once the current plan is prepared; the other plans stay awaited.
  void Stop();
  // Returns the number of buckets removed from the ladder because of the limit.
  int64_t evicted() const { return evicted_; }
  // Returns the effect of the limit on these plans, in sentences; empty if there was none.
  std::string limit_effect() const {
    MutexLock lock(&effect_mu_);
    return limit_effect_;
  }

 private:
  void Run();
  // Prepares the bucket's plan, within the limit.
  absl::Status Prepare(const Bucket& bucket);
  void Drop(const std::vector<Bucket>& buckets);
  // Returns the effect of the limit, which dropped the buckets, and keeps it for limit_effect.
  std::string DescribeLimit(const std::vector<Bucket>& dropped);

  ModelRunner* const runner_;
  const int64_t limit_bytes_;
  Observer* const observer_;
  std::atomic<bool> stopping_ = false;
  bool over_limit_ = false;  // used by the thread
  std::atomic<int64_t> evicted_ = 0;
  mutable Mutex effect_mu_;
  std::string limit_effect_ ABSL_GUARDED_BY(effect_mu_);

  Mutex join_mu_;
  std::thread thread_ ABSL_GUARDED_BY(join_mu_);  // last: starts when everything else is built
};

}  // namespace sluice
