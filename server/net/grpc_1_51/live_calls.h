// Limits the calls of a listener that gRPC has not yet released, over all connections.
//
// A peer that resets its streams may open new ones at once, but gRPC 1.51 releases the old calls
// later. The calls of many connections can therefore take much memory although each connection
// keeps to its own limit.
//
// The first three quarters of the places are shared fairly among addresses (FairShare): an address
// has at most the number of places that are then left for others, so a single address has three
// eighths of all places. Further calls of the address are refused. A refused call also takes memory
// until gRPC releases it. Such calls use the last quarter; if that is full too, all connections of
// the address are closed.
//
// A flood makes gRPC create calls much faster than it reports them. If more calls exist than there
// are places, reported or not, then also the connections of an address beyond its share are closed,
// and of one that has more than half of the reported calls and more than a few. The address of a
// call is unknown until gRPC reports it, so other connections of this address may have thousands of
// calls; hence all of them are closed.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/fair_share.h"
#include "base/mutex.h"

namespace sluice {

// Thread-safe.
class LiveCalls {
 public:
  enum class Verdict { kServe, kRefuse, kClose };

  explicit LiveCalls(int64_t max) : max_(max), served_(max - max / 4) {}

  // Count the calls that gRPC has created and not released, whether it has reported them or not.
  void OnCreated() { created_.fetch_add(1, std::memory_order_relaxed); }
  void OnReleased() { created_.fetch_sub(1, std::memory_order_relaxed); }

  // Counts a call from `address` (AddressOf) and returns what happens to it.
  Verdict Enter(const std::string& address);
  // Ends the count. Must be called once for each call, with the verdict of Enter.
  void Leave(const std::string& address, Verdict verdict);

  // The number of calls that were refused or closed.
  int64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  const int64_t max_;
  std::atomic<int64_t> refused_ = 0;
  std::atomic<int64_t> created_ = 0;
  Mutex mu_;
  int64_t live_ ABSL_GUARDED_BY(mu_) = 0;  // reported calls, including refused ones
  absl::flat_hash_map<std::string, int64_t> by_address_ ABSL_GUARDED_BY(mu_);  // the same calls
  FairShare served_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
