#include "server/calls/reply_thread.h"

#include <algorithm>
#include <utility>

namespace sluice {

ReplyThread::ReplyThread(Clock* clock) : clock_(clock), thread_([this] { Run(); }) {}

ReplyThread::~ReplyThread() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    posted_.Signal();
  }
  thread_.join();
}

void ReplyThread::Post(std::shared_ptr<Delivery> delivery) {
  MutexLock lock(&mu_);
  queue_.push_back(std::move(delivery));
  // With more than one entry the thread is awake or about to be.
  if (queue_.size() == 1) posted_.Signal();
}

void ReplyThread::PostAt(MonoTime time, std::weak_ptr<Delivery> delivery) {
  MutexLock lock(&mu_);
  timed_.push_back({time, std::move(delivery)});
  std::push_heap(timed_.begin(), timed_.end(), Later);
  if (timed_.front().time == time) posted_.Signal();
}

void ReplyThread::TakeDue() {
  const MonoTime now = clock_->Now();
  while (!timed_.empty() && timed_.front().time <= now) {
    std::pop_heap(timed_.begin(), timed_.end(), Later);
    if (std::shared_ptr<Delivery> delivery = timed_.back().delivery.lock()) {
      queue_.push_back(std::move(delivery));
    }
    timed_.pop_back();
  }
}

void ReplyThread::Run() {
  std::vector<std::shared_ptr<Delivery>> batch;
  for (;;) {
    {
      MutexLock lock(&mu_);
      if (!timed_.empty()) TakeDue();
      while (queue_.empty() && !stopping_) {
        clock_->WaitUntil(&posted_, &mu_, timed_.empty() ? MonoTime::max() : timed_.front().time);
        if (!timed_.empty()) TakeDue();
      }
      if (queue_.empty()) return;
      batch.swap(queue_);
    }
    for (std::shared_ptr<Delivery>& delivery : batch) {
      delivery->Deliver();
      delivery.reset();
    }
    batch.clear();
  }
}

}  // namespace sluice
