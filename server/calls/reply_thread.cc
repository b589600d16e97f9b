#include "server/calls/reply_thread.h"

#include <utility>

namespace sluice {

ReplyThread::ReplyThread(Clock* clock)
    : queue_({.clock = clock}, [](Entry& entry) {
        if (entry.delivery == nullptr) entry.delivery = entry.delivery_if_alive.lock();
        if (entry.delivery != nullptr) entry.delivery->Deliver();
      }) {}

void ReplyThread::Post(std::shared_ptr<Delivery> delivery) {
  queue_.Post({.delivery = std::move(delivery), .delivery_if_alive = {}});
}

void ReplyThread::PostAt(MonoTime time, std::weak_ptr<Delivery> delivery) {
  queue_.PostAt(time, {.delivery = nullptr, .delivery_if_alive = std::move(delivery)});
}

ReplyThreads::ReplyThreads(int count, Clock* clock) {
  for (int i = 0; i < count; ++i) threads_.push_back(std::make_unique<ReplyThread>(clock));
}

ReplyThread* ReplyThreads::OfNextCall() {
  return threads_[next_.fetch_add(1, std::memory_order_relaxed) % threads_.size()].get();
}

}  // namespace sluice
