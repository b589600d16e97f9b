// Ends calls whose peer sends or takes a message too slowly, or not at all.
//
// All wait equally long, so those who wait stand in a queue, in the order of their ends: to begin and
// to end a wait is a few instructions under a lock, and one thread looks at the head.
//
// Thread-safe. A call that waits is not destroyed: whoever owns a Wait ends it before the gRPC call
// goes. The calls must have gone before the watch does.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"

struct grpc_call;

namespace sluice {

class TransferWatch {
 public:
  // One call's place in the queue. Not thread-safe with itself.
  class Wait {
   public:
    Wait() = default;
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    friend class TransferWatch;
    grpc_call* call_ = nullptr;
    const char* what_ = nullptr;
    MonoTime end_;
    Wait* previous_ = nullptr;  // both null: not in the queue
    Wait* next_ = nullptr;
  };

  // `option`, a static text, is what bounds the patience: errors name it.
  TransferWatch(nanoseconds patience, const char* option, Clock* clock);
  ~TransferWatch();

  // Unless it is ended within the patience, `call` is cancelled with RESOURCE_EXHAUSTED and a message
  // that begins with `what`, a static text.
  void Begin(grpc_call* call, const char* what, Wait* wait);
  // Nothing happens when it has not begun, or has ended.
  void End(Wait* wait);

  // Calls that were cancelled so far.
  int64_t cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  void Run();
  void Unlink(Wait* wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CancelFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const nanoseconds patience_;
  const char* const option_;
  Clock* const clock_;
  std::atomic<int64_t> cancelled_ = 0;
  Mutex mu_;
  CondVar changed_;
  Wait queue_ ABSL_GUARDED_BY(mu_);  // its next is the head, its previous the tail
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace sluice
