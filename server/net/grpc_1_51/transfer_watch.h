// Ends calls whose peer sends or takes a message too slowly, or not at all.
//
// All waits last equally long, so they stand in a queue in the order of their ends. To begin or to
// end a wait takes a few instructions under a lock, and one thread looks at the head.
//
// Thread-safe. The owner of a Wait ends it before its gRPC call is destroyed, and all calls are
// destroyed before the watch.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/periodic_thread.h"

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

  // `option` is a static text and names the option that sets the patience, for error messages.
  TransferWatch(nanoseconds patience, const char* option, Clock* clock);

  // Cancels `call`, with RESOURCE_EXHAUSTED and a message that begins with the static text `what`,
  // unless End follows within the patience.
  void Begin(grpc_call* call, const char* what, Wait* wait);
  // Ends a wait. Does nothing if it has not begun or has ended.
  void End(Wait* wait);

  // The number of calls cancelled so far.
  int64_t cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  // Returns when the first of the waits that are left ends. No wait that begins later ends before.
  MonoTime CancelExpired();
  void Unlink(Wait* wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CancelFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const nanoseconds patience_;
  const char* const option_;
  Clock* const clock_;
  std::atomic<int64_t> cancelled_ = 0;
  Mutex mu_;
  Wait queue_ ABSL_GUARDED_BY(mu_);       // its next is the head, its previous the tail
  std::optional<PeriodicThread> thread_;  // last: ends before all else
};

}  // namespace sluice
