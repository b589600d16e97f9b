// The listening daemon: gRPC and HTTP on an engine.
//
// Order of life: whoever composes the daemon creates Log, Metrics, Statistics, RecentActivity and
// ReplyThread, then
// the Engine on them, then a Server. The server goes first, then the engine, then the rest.
//
// Order of drain (Drain): not ready -> drain_delay, while requests are still accepted -> the engine
// stops admission and finishes what it has accepted -> health watches end -> gRPC stops. gRPC's
// shutdown returns when every call has finished; those that have not by its deadline are cancelled,
// which finishes them.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "grpcpp/server.h"
#include "server/admin_service.h"
#include "server/engine_collector.h"
#include "server/engine_health.h"
#include "server/health.h"
#include "server/http.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/recent_activity.h"
#include "server/reply_thread.h"
#include "server/service.h"
#include "server/statistics.h"
#include "server/status_page.h"

namespace sluice {

// What a server stands on. Not owned; outlives it.
struct ServerParts {
  Engine* engine;
  Clock* clock;
  Metrics* metrics;
  Statistics* statistics;
  RecentActivity* activity;
  ReplyThread* replies;
  Log* log;
  EngineHealth* engine_health = nullptr;  // told of the server's health while it lives
};

class Server {
 public:
  // Listens, not ready yet. Unavailable when a port is taken, naming the address. `version` is the
  // daemon's.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::string& version,
                                                       const EngineTraits& traits,
                                                       const ServerParts& parts);
  ~Server();  // without drain: what is left is cancelled

  void SetReady() { health_.SetReady(true); }

  // See above. Blocks for up to drain_delay + drain_timeout and a second.
  void Drain();

  int grpc_port() const { return grpc_port_; }
  int http_port() const { return http_ == nullptr ? 0 : http_->port(); }  // 0: no HTTP

 private:
  Server(const ServerOptions& options, const std::string& version, const EngineTraits& traits,
         const ServerParts& parts);

  Phase phase() const;
  absl::Status StartGrpc();
  absl::Status StartHttp();
  void StopGrpc(nanoseconds grace);

  const ServerOptions options_;
  const ServerParts parts_;
  EngineCollector collector_;
  Health health_;
  Edge edge_;
  InferenceService service_;
  AdminService admin_;
  StatusSource status_;
  std::atomic<bool> draining_ = false;
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<HttpServer> http_;
  int grpc_port_ = 0;
};

// A quarter of what the cgroup, or else the machine, has.
int64_t DefaultMemoryQuota();

}  // namespace sluice
