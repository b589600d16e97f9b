// Ends calls whose peer sends or takes a message too slowly, or not at all.
//
// All waits last equally long, so they form a queue in the order in which they end. Beginning or
// ending a wait takes a few instructions under a lock, and one thread looks at the head of the
// queue.
//
// Thread-safe. The owner of a Wait ends it before its gRPC call is destroyed, and all calls are
// destroyed before the watch.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/periodic_thread.h"

struct grpc_call;

namespace sluice {

class TransferWatch {
 public:
  // What a wait is for: a message of the peer, or that it takes an answer.
  enum class Kind { kIncoming, kOutgoing };

  // The place of one call in the queue. Its owner never uses it from two threads at once.
  class Wait {
   public:
    Wait() = default;
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    friend class TransferWatch;
    grpc_call* call_ = nullptr;
    const char* what_ = nullptr;
    Kind kind_ = Kind::kIncoming;
    int64_t bytes_ = 0;
    MonoTime end_;
    Wait* previous_ = nullptr;  // both are null outside the queue
    Wait* next_ = nullptr;
  };

  // `patience` is how long a wait may last. `option` is a static text that names the option for it
  // in error messages. `clock` is not owned and outlives the watch. `max_incoming` is
  // GrpcOptions::max_calls.
  TransferWatch(nanoseconds patience, const char* option, Clock* clock,
                int64_t max_incoming = std::numeric_limits<int64_t>::max());

  // Begins a wait: unless End follows within the patience, cancels `call` with RESOURCE_EXHAUSTED
  // and a message that begins with the static text `what`. `bytes` is the memory that an answer
  // holds meanwhile. Cancels it at once if there are too many incoming waits.
  void Begin(grpc_call* call, const char* what, Wait* wait, Kind kind = Kind::kIncoming,
             int64_t bytes = 0);
  // Ends a wait. Does nothing if it has not begun or has ended.
  void End(Wait* wait);

  // Cancels, with RESOURCE_EXHAUSTED, the calls of the largest outgoing waits, older ones first,
  // until they held `bytes` or there are none.
  void CutLargest(int64_t bytes);

  // Cancels, with UNAVAILABLE, the calls of all incoming waits, and of those that begin later.
  void EndIncoming();

  // The number of calls that CutLargest has cancelled.
  int64_t cut() const { return cut_.load(std::memory_order_relaxed); }
  // The number of calls cancelled so far because a wait lasted too long.
  int64_t cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  // Cancels the calls whose waits have run out. Returns the time at which the first of the
  // remaining waits ends; no wait that begins later ends before it.
  MonoTime CancelExpired();
  void Unlink(Wait* wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes the wait from the queue and cancels its call; releases the lock meanwhile.
  void Cancel(Wait* wait, int code, const std::string& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const nanoseconds patience_;
  const char* const option_;
  Clock* const clock_;
  const int64_t max_incoming_;
  std::atomic<int64_t> cancelled_ = 0;
  std::atomic<int64_t> cut_ = 0;
  Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;    // EndIncoming was called
  int64_t incoming_ ABSL_GUARDED_BY(mu_) = 0;  // the number of incoming waits
  Wait queue_ ABSL_GUARDED_BY(mu_);            // its next_ is the head, its previous_ the tail
  std::optional<PeriodicThread> thread_;       // last, so that it ends before the other members
};

}  // namespace sluice
