// Accepts the connections of a gRPC server, up to a limit on open connections.
//
// gRPC 1.51's own listener has no limit, and if accept fails once for lack of descriptors, it never
// accepts again. This listener closes connections above the limit at once, and retries a little
// later after a failure.
//
// gRPC does not report when it closes a connection. The listener therefore records each
// connection's descriptor and inode. When a limit is reached, it forgets the connections whose
// descriptor is closed or has another inode.
//
// One thread accepts. Start and Stop are called once each, in this order, by one thread. All other
// methods are thread-safe.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/mutex.h"
#include "grpcpp/server_builder.h"
#include "server/net/grpc_1_51/failed_handshakes.h"
#include "server/net/grpc_1_51/listening_sockets.h"

namespace sluice {

// The numbers of connections and failures of a listener.
struct ListenerStats {
  int64_t open = 0;                // connections that are open
  int64_t refused = 0;             // connections closed because of the limits
  int64_t refused_for_memory = 0;  // connections closed by Refuse
  int64_t failed_accepts = 0;
  int64_t broken_off = 0;  // connections closed by Close
  FailedHandshakes::Counts failed_handshakes{};
};

class GrpcListener {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;
  struct Limits {
    int64_t max_connections;
    int64_t max_per_host;  // the most connections from one address (AddressOf)
  };

  // Listens. From then on clients may connect; they wait until Start. Returns the errors of
  // ListenOn. `on_failed_handshake` may be null.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Bind(
      const std::string& address, const Limits& limits,
      FailedHandshakes::OnFailed on_failed_handshake = nullptr);
  ~GrpcListener() { Stop(); }

  // Hands over the waiting connections and all later ones to `acceptor`, whose server has started.
  void Start(std::unique_ptr<Acceptor> acceptor);

  // Stops accepting and closes the port. Connections that were handed over stay open. Must be
  // called before the server is shut down.
  void Stop();

  // Closes the connection whose remote end is `peer`, in gRPC's format: "ipv4:192.0.2.1:54321".
  // gRPC then finds the connection closed, without the data it has not read, and ends its calls.
  void Close(const std::string& peer);
  // Closes all connections of the peer's address. Does nothing if the peer's connection is closed.
  void CloseAddressOf(const std::string& peer);

  // Closes all new connections at once while `refuse` is set.
  void Refuse(bool refuse) { refusing_.store(refuse, std::memory_order_relaxed); }

  int port() const { return sockets_.port; }
  ListenerStats Stats() const;

 private:
  GrpcListener(ListeningSockets sockets, Descriptor stop, const Limits& limits,
               FailedHandshakes::OnFailed on_failed_handshake)
      : limits_(limits),
        sockets_(std::move(sockets)),
        stop_(std::move(stop)),
        handshakes_(std::move(on_failed_handshake)) {}

  void Run();
  // Accepts until no connection waits. Returns false if accepting fails, for example for lack of
  // descriptors; the caller then retries a little later.
  bool AcceptAll(int listener);
  void Take(int listener, Descriptor connection);
  // Returns whether one more connection of `host` is within the limits.
  bool HasRoomFor(const std::string& host) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Forget() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the descriptor of the peer's connection, or -1 if it is closed.
  int FindOpen(const std::string& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BreakOff(int fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Erase(int fd) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Limits limits_;
  ListeningSockets sockets_;
  const Descriptor stop_;  // readable when the listener must stop
  const FailedHandshakes handshakes_;
  std::atomic<bool> stopping_ = false;
  std::unique_ptr<Acceptor> acceptor_;
  std::atomic<bool> refusing_ = false;
  std::thread thread_;

  mutable Mutex mu_;
  ListenerStats stats_ ABSL_GUARDED_BY(mu_);  // without `open`
  struct Connection {
    ino_t inode;
    std::string peer;
    bool broken_off = false;  // by Close
  };
  mutable absl::flat_hash_map<int, Connection> connections_ ABSL_GUARDED_BY(mu_);   // by descriptor
  mutable absl::flat_hash_map<std::string, int> by_peer_ ABSL_GUARDED_BY(mu_);      // descriptors
  mutable absl::flat_hash_map<std::string, int64_t> by_host_ ABSL_GUARDED_BY(mu_);  // counts
  MonoTime forgot_ ABSL_GUARDED_BY(mu_){};
};

// Raises the process's limit on descriptors to `connections` plus the daemon's own needs, as far as
// the hard limit allows. Returns the number of connections that are then possible, at least 1.
int64_t ReserveDescriptors(int64_t connections);

}  // namespace sluice
