// Sends replies off the engine's threads.
//
// The engine's sinks hold up every request of a model, while serialising and sending a reply costs
// tens of microseconds and, with logits, milliseconds. So a sink only posts itself here.
//
// Thread-safe. Deliveries run one at a time, in the order of their posting, on one thread. The
// destructor delivers what was posted before; nothing may be posted from then on. Outlives the
// engine.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "engine/mutex.h"

namespace sluice {

class Delivery {
 public:
  virtual ~Delivery() = default;
  virtual void Deliver() = 0;  // must not block
};

class ReplyThread {
 public:
  ReplyThread();
  ~ReplyThread();
  ReplyThread(const ReplyThread&) = delete;
  ReplyThread& operator=(const ReplyThread&) = delete;

  void Post(std::shared_ptr<Delivery> delivery);

 private:
  void Run();

  Mutex mu_;
  CondVar posted_;
  std::vector<std::shared_ptr<Delivery>> queue_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace sluice
