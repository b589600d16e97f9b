// Threads that share the jobs of several owners fairly.
//
//   JobPool pool({.threads = 2, .max_waiting = 1000});
//   if (!pool.Post("alice", [] { ... })) return absl::ResourceExhaustedError("too many jobs wait");
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/fair_share.h"
#include "base/mutex.h"

namespace sluice {

// Thread-safe. Owners take turns: each thread starts the oldest job of the owner that has waited
// longest since its last turn. The destructor waits for running jobs and drops the others.
class JobPool {
 public:
  struct Options {
    int threads = 1;
    int64_t max_waiting = 0;
  };
  using Job = std::function<void()>;

  explicit JobPool(const Options& options);
  ~JobPool();
  JobPool(const JobPool&) = delete;
  JobPool& operator=(const JobPool&) = delete;

  // Returns false, and drops `job`, if `owner` has as many jobs waiting as there are free places.
  bool Post(std::string_view owner, Job job);

  int64_t waiting() const;

 private:
  explicit JobPool(int64_t max_waiting);
  void Loop();
  // Returns an empty function when the pool ends.
  Job AwaitJob();

  mutable Mutex mu_;
  CondVar changed_;
  FairShare places_ ABSL_GUARDED_BY(mu_);                                        // of waiting jobs
  absl::flat_hash_map<std::string, std::deque<Job>> jobs_ ABSL_GUARDED_BY(mu_);  // none empty
  std::deque<std::string> turns_ ABSL_GUARDED_BY(mu_);  // the owners in jobs_, the next one first
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::vector<std::thread> threads_;  // last: they start when all else is built
};

}  // namespace sluice
