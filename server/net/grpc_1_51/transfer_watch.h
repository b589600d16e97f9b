// Ends calls whose peer sends or reads a message too slowly or not at all, and limits the number of
// calls that wait for their peers' messages.
//
// All waits have the same length, so they form a queue ordered by their ends. Starting or ending a
// wait takes a few instructions under a lock. One thread checks the head of the queue.
//
// If too many calls wait for messages, the watch ends the oldest call of the peer with the most
// waiting calls: it takes the address with the most, and of its callers the one with the most. So a
// peer that fills the watch loses its own calls, and a peer with few calls keeps them.
//
// Thread-safe. The owner of a Wait ends it before its gRPC call is destroyed, and all calls are
// destroyed before the watch.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/periodic_thread.h"

struct grpc_call;

namespace sluice {

class TransferWatch {
 private:
  struct Group;

 public:
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
    int64_t bytes_ = 0;
    MonoTime end_;
    Wait* previous_ = nullptr;  // both are null outside the queue
    Wait* next_ = nullptr;
    Group* group_ = nullptr;  // nullptr if the wait is for an answer to be read
    Wait* older_ = nullptr;   // in its group
    Wait* newer_ = nullptr;
  };

  // The peer that a waiting call counts for.
  struct Peer {
    std::string_view address;  // AddressOf the remote end
    std::string_view caller;   // its name, or empty if callers are not identified
  };

  // The limit on calls that wait for messages.
  struct Limit {
    int64_t max_incoming = std::numeric_limits<int64_t>::max();  // at least 1
    const char* full = "";  // the message for a call that is ended because the watch is full
    // Called after such an end, if it is set. No lock is held.
    std::function<void(const std::string& address, const std::string& caller)> on_full{};
  };

  // `patience` is the longest wait. `option` is a static text that names the option for it in error
  // messages. `clock` is not owned and outlives the watch.
  TransferWatch(nanoseconds patience, const char* option, Clock* clock)
      : TransferWatch(patience, option, clock, Limit()) {}
  TransferWatch(nanoseconds patience, const char* option, Clock* clock, Limit limit);

  // Starts to wait for a message from `peer`. If End is not called within the patience, cancels
  // `call` with RESOURCE_EXHAUSTED and a message that starts with the static text `what`. If more
  // than max_incoming calls wait, ends one of them with RESOURCE_EXHAUSTED, which may be this one.
  void BeginIncoming(grpc_call* call, const char* what, const Peer& peer, Wait* wait);
  // Starts to wait until the peer has read an answer, which holds `bytes` of memory. Cancels the
  // call as above if that takes longer than the patience.
  void BeginOutgoing(grpc_call* call, const char* what, int64_t bytes, Wait* wait);
  // Ends a wait. Does nothing if it has not started or has already ended.
  void End(Wait* wait);

  // Cancels, with RESOURCE_EXHAUSTED, the calls of the largest answers, older ones first, until
  // they add up to `bytes` or no answer waits. Returns the bytes of these answers.
  int64_t CutLargest(int64_t bytes);

  // Cancels, with UNAVAILABLE, all calls that wait for messages, now and in the future.
  void EndIncoming();

  // The number of calls that CutLargest has cancelled.
  int64_t cut() const { return cut_.load(std::memory_order_relaxed); }
  // The number of calls cancelled so far because a wait lasted too long.
  int64_t cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  // The number of calls ended so far because too many waited.
  int64_t displaced() const { return displaced_.load(std::memory_order_relaxed); }

 private:
  struct Address;
  // The calls of one caller at one address.
  struct Group {
    Address* address;
    std::string caller;
    int64_t waits = 0;
    Wait* oldest = nullptr;
    Wait* newest = nullptr;
  };
  struct Address {
    std::string name;
    int64_t waits = 0;
    absl::flat_hash_map<std::string, std::unique_ptr<Group>> callers{};
  };

  // Cancels the calls whose waits have expired. Returns the end of the first remaining wait; no
  // wait that starts later ends earlier.
  MonoTime CancelExpired();
  void Link(grpc_call* call, const char* what, Wait* wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Unlink(Wait* wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Count(const Peer& peer, Wait* wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Uncount(Wait* wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddTo(Address* address, int64_t waits) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the oldest wait of the peer with the most. Requires that one exists.
  Wait* OldestOfLargestPeer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes the wait from the queue and returns its call with a reference, because its owner may
  // end the call once the lock is released.
  grpc_call* Take(Wait* wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Cancel(const std::vector<grpc_call*>& taken, int code, const std::string& message);

  const nanoseconds patience_;
  const char* const option_;
  Clock* const clock_;
  const Limit limit_;
  std::atomic<int64_t> cancelled_ = 0;
  std::atomic<int64_t> cut_ = 0;
  std::atomic<int64_t> displaced_ = 0;
  Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;    // EndIncoming was called
  int64_t incoming_ ABSL_GUARDED_BY(mu_) = 0;  // the number of waits for messages
  Wait queue_ ABSL_GUARDED_BY(mu_);            // its next_ is the head, its previous_ the tail
  // An address without waits stays for a while, so that its next call allocates nothing.
  absl::flat_hash_map<std::string, std::unique_ptr<Address>> addresses_ ABSL_GUARDED_BY(mu_);
  std::set<std::pair<int64_t, Address*>> by_waits_ ABSL_GUARDED_BY(mu_);
  std::optional<PeriodicThread> thread_;  // last, so that it ends before the other members
};

}  // namespace sluice
