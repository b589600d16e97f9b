// Sends replies off the engine's threads.
//
// The engine's sinks hold up every request of a model, while serialising and sending a reply costs
// tens of microseconds and, with logits, milliseconds. So a sink only posts itself here.
//
// Thread-safe. Deliveries run one at a time, in the order of their posting, on one thread. The
// destructor delivers what was posted before, without waiting for later times; nothing may be posted
// from then on. Outlives the engine.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

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
  ~ReplyThread();
  ReplyThread(const ReplyThread&) = delete;
  ReplyThread& operator=(const ReplyThread&) = delete;

  void Post(std::shared_ptr<Delivery> delivery);

  // At `time` or soon after it, if the delivery still exists then.
  void PostAt(MonoTime time, std::weak_ptr<Delivery> delivery);

 private:
  struct Timed {
    MonoTime time;
    std::weak_ptr<Delivery> delivery;
  };
  static bool Later(const Timed& a, const Timed& b) { return a.time > b.time; }

  void Run();
  void TakeDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // moves them into the queue

  Clock* const clock_;
  Mutex mu_;
  CondVar posted_;
  std::vector<std::shared_ptr<Delivery>> queue_ ABSL_GUARDED_BY(mu_);
  std::vector<Timed> timed_ ABSL_GUARDED_BY(mu_);  // a heap, the earliest first
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace sluice
