// Sends replies from a thread that is not one of the engine's.
//
// While a sink of the engine runs, all requests of its model wait, and serialising and sending a
// reply takes tens of microseconds or, with logits, milliseconds. A sink therefore only posts
// itself here.
//
// Thread-safe. Deliveries run one at a time, in the order of their posting, on one thread. The
// destructor runs all deliveries posted so far, without waiting for those that are due later;
// nothing may be posted from then on. The thread outlives the engine.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/work_queue.h"

namespace sluice {

class Delivery {
 public:
  virtual ~Delivery() = default;
  virtual void Deliver() = 0;  // must not block
};

class ReplyThread {
 public:
  // `clock` is not owned and outlives the thread.
  explicit ReplyThread(Clock* clock = Clock::Real());

  void Post(std::shared_ptr<Delivery> delivery);
  // The number of deliveries that are posted and have not run to their end. Those with a time do
  // not count.
  int unfinished() const { return unfinished_.load(std::memory_order_relaxed); }

  // Runs the delivery at `time` or soon after it, if it still exists then.
  void PostAt(MonoTime time, std::weak_ptr<Delivery> delivery);

 private:
  // Exactly one of the two is set.
  struct Entry {
    std::shared_ptr<Delivery> delivery;
    std::weak_ptr<Delivery> delivery_if_alive;
  };

  std::atomic<int> unfinished_ = 0;
  WorkQueue<Entry> queue_;  // last, so that its thread ends before the other members
};

// Some reply threads, so that a reply that takes long holds up only some of the others.
class ReplyThreads {
 public:
  // `clock` is as above.
  explicit ReplyThreads(int count = 1, Clock* clock = Clock::Real());

  // The deliveries that a thread may have before another one gets the next.
  static constexpr int kFew = 8;

  // Posts the only delivery of a call to the first thread that has few, or to the one that has the
  // fewest: short replies wake no more threads than they need, and few of them wait for one that
  // takes long. Thread-safe.
  void Post(std::shared_ptr<Delivery> delivery);

  // Returns the thread of a call with several deliveries, in turns. The call uses no other one, so
  // that what it posts is delivered in order. Thread-safe.
  ReplyThread* OfNextCall();

 private:
  std::vector<std::unique_ptr<ReplyThread>> threads_;
  std::atomic<size_t> next_ = 0;
};

}  // namespace sluice
