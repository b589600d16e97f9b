// Finds connections that exceed their HTTP/2 limits in cases that gRPC 1.51 does not detect.
//
// gRPC applies only limits that the peer has acknowledged, so a peer that never acknowledges them
// has no limit on streams or metadata. Moreover, a stream that its caller resets no longer counts,
// although the daemon has not finished its call (CVE-2023-44487). Each such call takes about 10 KB
// and its metadata, which the memory quota does not cover. The guard therefore counts calls per
// connection, and per address and listener (LiveCalls), from gRPC's report of a call until gRPC has
// released it.
//
// gRPC reports calls to an interceptor, but with an interceptor each operation of the call passes
// through the event queue twice. The guard therefore uses its own call contexts (Contexts), which
// end when the call ends, and gives such calls no interceptor. Only calls of methods that do not
// exist have other contexts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_interceptor.h"
#include "server/net/grpc_1_51/live_calls.h"

namespace sluice {

// Must be given to a server, which owns it. Thread-safe.
class CallGuard final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  struct Limits {
    int64_t max_calls;           // of one connection at any time
    int64_t max_metadata_bytes;  // of one call: names and values, and 32 bytes per entry
  };
  // The remote end of a connection, in gRPC's format: "ipv4:192.0.2.1:54321".
  using Peer = std::string;
  // `whole_address` is whether all connections of the address are in excess.
  using OnExcess = std::function<void(const Peer&, bool whole_address)>;
  // Called for each call that LiveCalls refuses. `closed` is whether on_excess was called too.
  using OnRefused = std::function<void(const std::string& address, bool closed)>;

  // `on_excess` is called when a connection exceeds the number of calls, and for each call with too
  // much metadata or beyond the last place of `live`. No lock is held while the callbacks run.
  // `live` is not owned and outlives the guard.
  CallGuard(const Limits& limits, LiveCalls* live, OnExcess on_excess, OnRefused on_refused)
      : limits_(limits),
        live_(live),
        on_excess_(std::move(on_excess)),
        on_refused_(std::move(on_refused)) {}

  // Returns the allocator of call contexts, which must be given to the same server. `live` is that
  // of the guard.
  static std::unique_ptr<grpc::ContextAllocator> Contexts(LiveCalls* live);

  // Returns ResourceExhausted for a call that must end at once, because its address has too many
  // calls. The context comes from Contexts; other contexts are OK.
  static absl::Status Check(const grpc::CallbackServerContext& context);

  // Counts the call. Returns nullptr if its context comes from Contexts, or else an interceptor
  // that does nothing and lives until the call ends.
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
  // Counts a call of `peer` and returns the number of its calls, including this one.
  int64_t Enter(const Peer& peer);
  void Leave(const Peer& peer);

  const Limits limits_;
  LiveCalls* const live_;
  const OnExcess on_excess_;
  const OnRefused on_refused_;
  Shard shards_[kShards];
};

}  // namespace sluice
