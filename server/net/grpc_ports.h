// The daemon's gRPC addresses: inference, admin API, and health for probes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/common/log.h"
#include "server/common/options.h"
#include "server/net/grpc_port.h"
#include "server/security/security.h"

namespace sluice {

struct ListenerStats {
  const char* listener;  // "grpc", "admin" or "health"
  int64_t open = 0;      // connections
  int64_t refused = 0;   // that were too many
  int64_t failed_accepts = 0;
  int64_t broken_off = 0;
};

// Start and Stop are called once each, by one thread; Stats by any.
class GrpcPorts {
 public:
  // Not owned; outlive the ports.
  struct Services {
    std::vector<grpc::Service*> inference;
    std::vector<grpc::Service*> admin;
    std::vector<grpc::Service*> health;
  };

  // Listens where the options say. Unavailable when an address is taken, naming it.
  absl::Status Start(const ServerOptions& options, const Services& services,
                     const Security& security, Log* log);

  // Accepts no more, calls `end_watches`, and returns when all calls have ended; those that are
  // left after `grace` are cancelled.
  void Stop(nanoseconds grace, const std::function<void()>& end_watches);

  // 0: there is none.
  int inference() const { return PortOf(inference_); }
  int admin() const { return PortOf(admin_); }
  int health() const { return PortOf(health_); }

  std::vector<ListenerStats> Stats() const;

 private:
  static int PortOf(const std::unique_ptr<GrpcPort>& port) {
    return port == nullptr ? 0 : port->port();
  }
  absl::Status Open(const GrpcPort::Options& options, const char* name,
                    std::unique_ptr<GrpcPort>* port);

  std::unique_ptr<GrpcPort> inference_, admin_, health_;

  mutable Mutex mu_;
  std::vector<std::pair<const char*, const GrpcPort*>> open_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
