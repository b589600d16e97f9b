// The daemon's gRPC addresses: one for inference, one for the admin API, and one for health probes.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/common/log.h"
#include "server/common/options.h"
#include "server/common/refusal_log.h"
#include "server/net/grpc_port.h"
#include "server/security/security.h"

namespace sluice {

struct PortStats {
  ListenerStats connections;
  int64_t refused_calls = 0;  // by LiveCalls
};

// Start and Stop are called once each, by one thread. Stats is thread-safe.
class GrpcPorts {
 public:
  // The services at each address. They are not owned and outlive the ports.
  struct Services {
    std::vector<grpc::Service*> inference;
    std::vector<grpc::Service*> admin;
    std::vector<grpc::Service*> health;
  };

  // Listens at the addresses in the options. Returns Unavailable, naming the address, if an address
  // is taken.
  absl::Status Start(const ServerOptions& options, const Services& services,
                     const Security& security, Log* log);

  // Stops accepting, calls `end_watches`, and returns when all calls have ended. Calls that are
  // still running after `grace` are cancelled.
  void Stop(nanoseconds grace, const std::function<void()>& end_watches);

  // While `refuse` is set, closes new connections for inference at once; admin and health
  // connections are accepted. Thread-safe.
  void RefuseConnections(bool refuse);

  // Each returns 0 if there is no such port.
  int inference() const { return PortOf(inference_); }
  int admin() const { return PortOf(admin_); }
  int health() const { return PortOf(health_); }

  // Returns the statistics of each port, with its name: "grpc", "admin" or "health".
  std::vector<std::pair<const char*, PortStats>> Stats() const;

 private:
  static int PortOf(const std::unique_ptr<GrpcPort>& port) {
    return port == nullptr ? 0 : port->port();
  }
  absl::Status Open(GrpcPort::Options options, const char* name, const char* option, Log* log,
                    std::unique_ptr<GrpcPort>* port);

  std::list<RefusalLog> refusals_;  // two for each port: calls and handshakes
  std::unique_ptr<GrpcPort> inference_, admin_, health_;

  mutable Mutex mu_;
  std::vector<std::pair<const char*, GrpcPort*>> open_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
