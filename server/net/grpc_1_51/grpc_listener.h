// Accepts the connections of a gRPC server, and no more than allowed at a time.
//
// gRPC 1.51's own listener takes whatever comes, and once accept fails because descriptors have run
// out it never accepts again. This one has a bound, closes at once what is beyond it, and after a
// failure goes on a little later.
//
// gRPC does not tell when it closes a connection. So each is remembered by its descriptor and
// inode, and when the bound is met those whose descriptor is closed, or is something else by then,
// are forgotten.
//
// One thread accepts. Start and Stop are called once, in this order, by one thread; the rest is
// thread-safe.
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
#include "server/net/grpc_1_51/listening_sockets.h"

namespace sluice {

class GrpcListener {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  // Listens; clients may connect and wait from then on. Errors as of ListenOn.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Bind(const std::string& address,
                                                            int64_t max_connections);
  ~GrpcListener() { Stop(); }

  // Hands what is and will be accepted to `acceptor`, whose server has started.
  void Start(std::unique_ptr<Acceptor> acceptor);

  // Accepts no more and closes the port. What was handed over stays. To be called before the
  // server is shut down.
  void Stop();

  // Breaks the connection off whose other end is `peer`, as gRPC writes it: "ipv4:192.0.2.1:54321".
  // gRPC finds it closed and ends its calls. Takes some milliseconds when there are thousands.
  void Close(const std::string& peer);

  int port() const { return sockets_.port; }
  int64_t open() const;  // connections
  // Connections closed because there were max_connections, and failures to accept.
  int64_t refused() const { return refused_.load(std::memory_order_relaxed); }
  int64_t failed_accepts() const { return failed_accepts_.load(std::memory_order_relaxed); }
  int64_t broken_off() const { return broken_off_.load(std::memory_order_relaxed); }

 private:
  GrpcListener(ListeningSockets sockets, Descriptor stop, int64_t max_connections)
      : max_connections_(max_connections), sockets_(std::move(sockets)), stop_(std::move(stop)) {}

  void Run();
  // Accepts until no connection waits. Returns false if accepting fails, for want of descriptors or
  // for any other reason; the listener then goes on a little later.
  bool AcceptAll(int listener);
  void Take(int listener, Descriptor connection);
  bool HasRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Forget() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t max_connections_;
  ListeningSockets sockets_;
  const Descriptor stop_;  // readable when it is to stop
  std::unique_ptr<Acceptor> acceptor_;
  std::atomic<int64_t> refused_ = 0;
  std::atomic<int64_t> failed_accepts_ = 0;
  std::atomic<int64_t> broken_off_ = 0;
  std::thread thread_;

  mutable Mutex mu_;
  mutable absl::flat_hash_map<int, ino_t> connections_ ABSL_GUARDED_BY(mu_);  // by descriptor
  MonoTime forgot_ ABSL_GUARDED_BY(mu_){};
};

// Lets the process open descriptors for so many connections beside its own, as far as the hard
// limit allows, and returns how many connections that are, at least 1.
int64_t ReserveDescriptors(int64_t connections);

}  // namespace sluice
