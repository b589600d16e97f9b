#include "server/calls/reply_thread.h"

#include <utility>

namespace sluice {

ReplyThread::ReplyThread(Clock* clock)
    : queue_({.clock = clock}, [this](Entry& entry) {
        if (entry.delivery != nullptr) {
          entry.delivery->Deliver();
          unfinished_.fetch_sub(1, std::memory_order_relaxed);
        } else if (const std::shared_ptr<Delivery> alive = entry.delivery_if_alive.lock()) {
          alive->Deliver();
        }
      }) {}

void ReplyThread::Post(std::shared_ptr<Delivery> delivery) {
  unfinished_.fetch_add(1, std::memory_order_relaxed);
  queue_.Post({.delivery = std::move(delivery), .delivery_if_alive = {}});
}

void ReplyThread::PostAt(MonoTime time, std::weak_ptr<Delivery> delivery) {
  queue_.PostAt(time, {.delivery = nullptr, .delivery_if_alive = std::move(delivery)});
}

ReplyThreads::ReplyThreads(int count, Clock* clock) {
  for (int i = 0; i < count; ++i) threads_.push_back(std::make_unique<ReplyThread>(clock));
}

void ReplyThreads::Post(std::shared_ptr<Delivery> delivery) {
  ReplyThread* least = nullptr;
  int fewest = 0;
  for (const auto& thread : threads_) {
    const int unfinished = thread->unfinished();
    if (least == nullptr || unfinished < fewest) {
      least = thread.get();
      fewest = unfinished;
    }
    if (fewest < kFew) break;
  }
  least->Post(std::move(delivery));
}

ReplyThread* ReplyThreads::OfNextCall() {
  return threads_[next_.fetch_add(1, std::memory_order_relaxed) % threads_.size()].get();
}

}  // namespace sluice
