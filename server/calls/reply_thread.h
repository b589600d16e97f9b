// Sends replies off the engine's threads.
//
// The engine's sinks hold up every request of a model, while serialising and sending a reply costs
// tens of microseconds and, with logits, milliseconds. So a sink only posts itself here.
//
// Thread-safe. Deliveries run one at a time, in the order of their posting, on one thread. The
// destructor delivers what was posted before, without waiting for later times; nothing may be
// posted from then on. The thread outlives the engine.
#pragma once

#include <memory>

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

  // Delivers at `time` or soon after it, if the delivery still exists then.
  void PostAt(MonoTime time, std::weak_ptr<Delivery> delivery);

 private:
  // One of the two is set.
  struct Entry {
    std::shared_ptr<Delivery> delivery;
    std::weak_ptr<Delivery> delivery_if_alive;
  };

  WorkQueue<Entry> queue_;
};

}  // namespace sluice
