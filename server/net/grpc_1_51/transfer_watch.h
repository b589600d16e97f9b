// Ends calls whose peer sends or reads a message too slowly or not at all.
//
// All waits have the same length, so they form a queue ordered by their ends. Starting or ending a
// wait takes a few instructions under a lock. One thread checks the head of the queue.
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
  // The reason for a wait: the peer must send a message, or must read an answer.
  enum class Kind { kIncoming, kOutgoing };

  // The entry of one call in the queue. Its owner never uses it from two threads at once.
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

  // `patience` is the longest wait. `option` is a static text that names the option for it in error
  // messages. `clock` is not owned and outlives the watch. `max_incoming` is
  // GrpcOptions::max_calls.
  TransferWatch(nanoseconds patience, const char* option, Clock* clock,
                int64_t max_incoming = std::numeric_limits<int64_t>::max());

  // Starts a wait. If End is not called within the patience, cancels `call` with RESOURCE_EXHAUSTED
  // and a message that starts with the static text `what`. `bytes` is the memory that an answer
  // holds during the wait. Cancels the call at once if there are too many incoming waits.
  void Begin(grpc_call* call, const char* what, Wait* wait, Kind kind = Kind::kIncoming,
             int64_t bytes = 0);
  // Ends a wait. Does nothing if it has not started or has already ended.
  void End(Wait* wait);

  // Cancels, with RESOURCE_EXHAUSTED, the calls of the largest outgoing waits, older ones first,
  // until their answers add up to `bytes` or no wait is left.
  void CutLargest(int64_t bytes);

  // Cancels, with UNAVAILABLE, the calls of all incoming waits, now and in the future.
  void EndIncoming();

  // The number of calls that CutLargest has cancelled.
  int64_t cut() const { return cut_.load(std::memory_order_relaxed); }
  // The number of calls cancelled so far because a wait lasted too long.
  int64_t cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  // Cancels the calls whose waits have expired. Returns the end of the first remaining wait; no
  // wait that starts later ends earlier.
  MonoTime CancelExpired();
  void Unlink(Wait* wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes the wait from the queue and cancels its call. Releases the lock during the
  // cancellation.
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
