#include "base/job_pool.h"

#include <utility>

namespace sluice {

JobPool::JobPool(int64_t max_waiting) : places_(max_waiting) {}

// If a thread cannot be started, the destructor ends the others, because the other constructor has
// completed.
JobPool::JobPool(const Options& options) : JobPool(options.max_waiting) {
  threads_.reserve(options.threads);
  for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { Loop(); });
}

JobPool::~JobPool() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

bool JobPool::Post(std::string_view owner, Job job) {
  MutexLock lock(&mu_);
  if (!places_.Take(owner, 1)) return false;
  std::deque<Job>& jobs = jobs_[absl::string_view(owner.data(), owner.size())];
  if (jobs.empty()) turns_.emplace_back(owner);
  jobs.push_back(std::move(job));
  changed_.Signal();
  return true;
}

int64_t JobPool::waiting() const {
  MutexLock lock(&mu_);
  return places_.used();
}

JobPool::Job JobPool::AwaitJob() {
  MutexLock lock(&mu_);
  while (!stopping_ && turns_.empty()) changed_.Wait(&mu_);
  if (stopping_) return nullptr;
  std::string owner = std::move(turns_.front());
  turns_.pop_front();
  const auto jobs = jobs_.find(owner);
  Job job = std::move(jobs->second.front());
  jobs->second.pop_front();
  places_.Return(owner, 1);
  if (jobs->second.empty()) {
    jobs_.erase(jobs);
  } else {
    turns_.push_back(std::move(owner));
  }
  return job;
}

void JobPool::Loop() {
  while (const Job job = AwaitJob()) job();
}

}  // namespace sluice
