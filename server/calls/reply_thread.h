// Sends replies from a thread that does not belong to the engine.
//
// While a sink of the engine runs, all requests of its model wait. Serialising and sending a reply
// takes tens of microseconds, or milliseconds with logits. A sink therefore only posts itself here.
//
// Thread-safe. Deliveries run one at a time on one thread, in posting order. The destructor runs
// all posted deliveries except those due later; nothing may be posted once it has started. The
// thread outlives the engine.
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
  // The number of posted deliveries that have not finished. Deliveries with a time do not count.
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

// Several reply threads, so that a slow reply delays only some of the others.
class ReplyThreads {
 public:
  // `clock` is not owned and outlives the threads.
  explicit ReplyThreads(int count = 1, Clock* clock = Clock::Real());

  // A thread with at least this many unfinished deliveries is skipped if another one has fewer.
  static constexpr int kFew = 8;

  // Posts the only delivery of a call to the first thread with few deliveries, or else to the
  // thread with the fewest. Short replies then wake few threads, and few replies wait for a slow
  // one. Thread-safe.
  void Post(std::shared_ptr<Delivery> delivery);

  // Returns the thread for a call with several deliveries, in rotation. The call uses only this
  // thread, so its deliveries stay in order. Thread-safe.
  ReplyThread* OfNextCall();

 private:
  std::vector<std::unique_ptr<ReplyThread>> threads_;
  std::atomic<size_t> next_ = 0;
};

}  // namespace sluice
