#include "base/job_pool.h"

#include <utility>

namespace sluice {

JobPool::JobPool(const Options& options) : options_(options) {
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
  const auto own = jobs_.find(absl::string_view(owner.data(), owner.size()));
  const size_t owned = own == jobs_.end() ? 0 : own->second.size();
  if (waiting_ + owned >= options_.max_waiting) return false;
  if (own != jobs_.end()) {
    own->second.push_back(std::move(job));
  } else {
    jobs_[std::string(owner)].push_back(std::move(job));
    turns_.emplace_back(owner);
  }
  ++waiting_;
  changed_.Signal();
  return true;
}

size_t JobPool::waiting() const {
  MutexLock lock(&mu_);
  return waiting_;
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
  --waiting_;
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
