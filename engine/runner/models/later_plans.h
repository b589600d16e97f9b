// Prepares the plans that a model was ready without.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "engine/observer.h"
#include "engine/runner/models/model_runner.h"

namespace sluice {

// Concurrency contract
//   * A thread of low priority prepares the awaited plans of the runner one after another, each
//     time the one that most steps have asked for, and ends. Steps run meanwhile, in larger
//     buckets. No review may change the ladder until then; see Finish.
//   * Bits do not depend on it, since no result depends on the bucket. Costs are not measured here:
//     the first steps in a bucket do that.
//   * A bucket whose plan cannot be prepared leaves the ladder, with a notice. All that are still
//     awaited leave it if the device has no memory left or the limit is reached.
class LaterPlans {
 public:
  // Neither pointer is owned; both outlive this. A limit of 0 means none.
  LaterPlans(ModelRunner* runner, int64_t memory_limit_bytes, Observer* observer);
  ~LaterPlans() { Stop(); }

  // Returns when no plan is awaited any more, or after Stop.
  void Finish();
  // Ends the thread once the plan in work is prepared; the others stay awaited.
  void Stop();
  // Returns the number of buckets that left the ladder for the limit.
  int64_t evicted() const { return evicted_; }

 private:
  void Run();
  // Prepares the bucket's plan, within the limit.
  absl::Status Prepare(const Bucket& bucket);
  void Drop(const std::vector<Bucket>& buckets);

  ModelRunner* const runner_;
  const int64_t limit_bytes_;
  Observer* const observer_;
  std::atomic<bool> stopping_ = false;
  bool over_limit_ = false;  // used by the thread
  std::atomic<int64_t> evicted_ = 0;

  Mutex join_mu_;
  std::thread thread_ ABSL_GUARDED_BY(join_mu_);  // last: starts when all else is built
};

}  // namespace sluice
