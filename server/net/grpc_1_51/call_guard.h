// Finds the connections that ask for more than HTTP/2 allows them, where gRPC 1.51 lets them.
//
// gRPC's limits are those that the peer has acknowledged: one that never does is held to none, on
// streams or metadata. And a stream that its caller resets counts no more, though its call is still
// to be worked off (CVE-2023-44487). Such calls take some 10 KB each, and their metadata, which the
// memory quota does not know of. So calls are counted by connection, from the moment that gRPC
// shows one until it has forgotten it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "grpcpp/support/server_interceptor.h"

namespace sluice {

// To be given to a server, which owns it. Thread-safe.
class CallGuard final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  struct Limits {
    int64_t max_calls;           // of one connection at a time
    int64_t max_metadata_bytes;  // of one call: names, values and 32 bytes for each
  };
  // The other end of a connection, as gRPC writes it: "ipv4:192.0.2.1:54321".
  using Peer = std::string;
  using OnExcess = std::function<void(const Peer&)>;

  // `on_excess` is called, under no lock, when a connection comes to have too many calls, and for
  // each call with too much metadata.
  CallGuard(const Limits& limits, OnExcess on_excess)
      : limits_(limits), on_excess_(std::move(on_excess)) {}

  // An interceptor that does nothing but live as long as the call.
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override;

 private:
  class Counted;
  static constexpr size_t kShards = 16;  // so that calls of different connections rarely meet
  struct Shard {
    Mutex mu;
    absl::flat_hash_map<Peer, int64_t> calls ABSL_GUARDED_BY(mu);
  };

  Shard& ShardOf(const Peer& peer) { return shards_[std::hash<Peer>()(peer) % kShards]; }
  // The calls of `peer`, this one among them.
  int64_t Enter(const Peer& peer);
  void Leave(const Peer& peer);

  const Limits limits_;
  const OnExcess on_excess_;
  Shard shards_[kShards];
};

}  // namespace sluice
