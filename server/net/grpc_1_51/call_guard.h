// Finds the connections that exceed what HTTP/2 allows them, in cases where gRPC 1.51 does not.
//
// gRPC applies only limits that the peer has acknowledged, so a peer that never acknowledges them
// has no limit on streams or metadata. Moreover, a stream that its caller resets no longer counts,
// although the daemon has not finished its call (CVE-2023-44487). Each such call takes about 10 KB,
// and its metadata, which the memory quota does not cover. The guard therefore counts calls per
// connection, from the moment when gRPC reports a call until gRPC has forgotten it.
//
// gRPC tells an interceptor of a call, but with an interceptor each operation of the call passes
// through its queue of events twice. A call therefore has none if its context is one of the
// guard's (Contexts), whose end is that of the call; only calls of methods that do not exist have
// others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_interceptor.h"

namespace sluice {

// Must be given to a server, which owns it. Thread-safe.
class CallGuard final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  struct Limits {
    int64_t max_calls;           // of one connection at any time
    int64_t max_metadata_bytes;  // of one call: names and values, and 32 bytes per entry
  };
  // The other end of a connection, as gRPC writes it: "ipv4:192.0.2.1:54321".
  using Peer = std::string;
  using OnExcess = std::function<void(const Peer&)>;

  // `on_excess` is called when a connection exceeds the number of calls, and for each call with too
  // much metadata. No lock is held during the call.
  CallGuard(const Limits& limits, OnExcess on_excess)
      : limits_(limits), on_excess_(std::move(on_excess)) {}

  // Returns the allocator of the contexts of calls, which must be given to the same server.
  static std::unique_ptr<grpc::ContextAllocator> Contexts();

  // Counts the call. Returns nullptr if its context is one of Contexts, or else an interceptor that
  // does nothing; it only lives as long as the call.
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override;

 private:
  class Counted;
  class Context;
  class ContextsOfCalls;
  static constexpr size_t kShards = 16;  // keeps calls of different connections from contending
  struct Shard {
    Mutex mu;
    absl::flat_hash_map<Peer, int64_t> calls ABSL_GUARDED_BY(mu);
  };

  Shard& ShardOf(const Peer& peer) { return shards_[std::hash<Peer>()(peer) % kShards]; }
  // Counts a call of `peer` and returns how many calls it has, this one included.
  int64_t Enter(const Peer& peer);
  void Leave(const Peer& peer);

  const Limits limits_;
  const OnExcess on_excess_;
  Shard shards_[kShards];
};

}  // namespace sluice
