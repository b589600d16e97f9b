#include "server/reply_thread.h"

#include <utility>

namespace sluice {

ReplyThread::ReplyThread() : thread_([this] { Run(); }) {}

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

void ReplyThread::Run() {
  std::vector<std::shared_ptr<Delivery>> batch;
  for (;;) {
    {
      MutexLock lock(&mu_);
      while (queue_.empty() && !stopping_) posted_.Wait(&mu_);
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
