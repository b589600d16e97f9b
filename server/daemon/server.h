// The listening daemon: the gRPC and HTTP servers on top of an engine.
//
// Lifetimes: main makes the other ServerParts, then the Engine that uses them, then a Server. The
// server is destroyed first, then the engine, then the others. Members of the server are destroyed
// in reverse order: the periodic threads, HTTP, the gRPC ports with their calls, the services, the
// frontend, then the ServingContext that all of them refer to.
//
// Order of Drain: the daemon becomes not ready. Requests are still accepted for drain_delay. The
// engine stops admission and finishes the accepted requests. Then health watches, idle streams and
// calls whose message has not arrived end. Last, gRPC stops: its shutdown returns when every call
// has finished, that is, when the callers have read their answers. Calls that have not finished by
// its deadline are cancelled, which finishes them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/periodic_thread.h"
#include "server/admin/admin_service.h"
#include "server/admin/status_page/http.h"
#include "server/admin/status_page/status_page.h"
#include "server/common/memory_limits.h"
#include "server/common/options.h"
#include "server/inference/frontend.h"
#include "server/inference/service.h"
#include "server/inference/serving_context.h"
#include "server/net/grpc_ports.h"
#include "server/security/security.h"

namespace sluice {

class Server {
 public:
  // Returns a server that listens and is not ready yet. Returns Unavailable, naming the address, if
  // a port is taken, and the errors of MemoryLimits::Check and, for files, of Security::Open.
  // `version` is the daemon's version; `engine_options` are shown to clients.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::string& version,
                                                       const EngineOptions& engine_options,
                                                       const ServerParts& parts);
  ~Server();  // does not drain: calls in progress are cancelled

  void SetReady() {
    RecordHistory();
    context_.health.SetReady(true);
  }

  ModelManager& models() { return context_.models; }
  Health& health() { return context_.health; }

  // Returns the limits, including the models that are served now.
  MemoryLimits memory_limits() const;
  // Replaces the limit of the process's memory. The shares that were computed from it stay.
  void SetMemoryLimit(int64_t bytes) { context_.overload.SetLimit(bytes); }

  // Sets the handler of Admin.Reload. Must be called before SetReady; until then, Admin.Reload
  // returns UNAVAILABLE.
  void SetReload(Reload reload) { admin_.SetReload(std::move(reload)); }

  // Returns the options in use: the options at the start, with the values that reloads have set.
  ServerOptions options();
  LifecycleOptions lifecycle();

  // Validates changed options and returns a function that applies the ones that a reload can
  // change, which are marked Live and which `options` reads. Reads the files of TLS and of callers
  // again, and returns an error if they are invalid.
  absl::StatusOr<std::function<void()>> Prepare(const ServerOptions& options);

  // Drains in the order above. Blocks for at most drain_delay + drain_timeout + 1 s: callers have
  // the rest of the timeout after the engine has drained, and at least 1 s, to read their answers.
  void Drain();

  // Each returns 0 if there is no such port.
  int grpc_port() const { return ports_.inference(); }
  int admin_port() const { return ports_.admin(); }
  int health_port() const { return ports_.health(); }
  int http_port() const { return http_ == nullptr ? 0 : http_->port(); }

 private:
  Server(const ServerOptions& options, const std::string& version,
         const EngineOptions& engine_options, const ServerParts& parts,
         std::unique_ptr<Security> security);

  Plane public_plane();
  Plane admin_plane();
  Phase phase() const;
  void LookForModels();
  void WarnOfCertificates() const;
  void RecordHistory() { context_.history.Add(context_.engine->Stats(), context_.clock->Now()); }
  // Returns the refusals since the start, with the calls that have no known credential.
  RecentActivity::Refusals Refused() const;
  std::string RenderMetrics() const;
  absl::Status StartGrpc();
  absl::Status StartHttp();
  void StopGrpc(nanoseconds grace);

  const ServerOptions options_;  // the options at the start; reloads do not change them
  const std::unique_ptr<Security> security_;
  const int64_t process_bytes_;  // the memory of the process before serving
  ServingContext context_;
  InferenceFrontend frontend_;
  InferenceService service_;
  InferenceService admin_service_;
  AdminService admin_;
  Mutex mu_;
  LifecycleOptions lifecycle_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> draining_ = false;
  GrpcPorts ports_;
  std::unique_ptr<HttpServer> http_;
  // These end before the members that they use.
  std::optional<PeriodicThread> memory_looks_;
  std::optional<PeriodicThread> history_looks_;
};

}  // namespace sluice
