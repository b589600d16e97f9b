// The listening daemon: the gRPC and HTTP servers on top of an engine.
//
// Lifetimes: main creates Log, Metrics, Statistics, RecentActivity and ReplyThreads, then the
// Engine that uses them, then a Server. The server is destroyed first, then the engine, then the
// others.
//
// Order of Drain: the daemon becomes not ready; requests are still accepted for drain_delay; the
// engine stops admission and finishes the requests that it has accepted; health watches, streams in
// which nothing is in progress and calls whose message has not arrived end; gRPC stops. gRPC's
// shutdown returns when every call has finished, which is when the callers have taken their
// answers. Calls that have not finished by its deadline are cancelled, which finishes them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/periodic_thread.h"
#include "base/resident_memory.h"
#include "base/work_queue.h"
#include "engine/engine.h"
#include "server/admin/admin_service.h"
#include "server/admin/status_page/http.h"
#include "server/admin/status_page/status_page.h"
#include "server/calls/reply_thread.h"
#include "server/common/call_memory.h"
#include "server/common/log.h"
#include "server/common/memory_limits.h"
#include "server/common/options.h"
#include "server/daemon/engine_health.h"
#include "server/inference/health.h"
#include "server/inference/service.h"
#include "server/models/model_manager.h"
#include "server/net/grpc_1_51/transfer_watch.h"
#include "server/net/grpc_ports.h"
#include "server/observe/access_log.h"
#include "server/observe/bucket_history.h"
#include "server/observe/edge_collector.h"
#include "server/observe/engine_collector.h"
#include "server/observe/metrics.h"
#include "server/observe/recent_activity.h"
#include "server/observe/statistics.h"
#include "server/security/security.h"

namespace sluice {

// The parts that a server uses. They are not owned and outlive it.
struct ServerParts {
  Engine* engine;
  Clock* clock;
  Metrics* metrics;
  Statistics* statistics;
  RecentActivity* activity;
  ReplyThreads* replies;
  Log* log;
  AccessLog* access = nullptr;
  std::function<int64_t()> resident = ResidentBytes;  // the memory of the process
  EngineHealth* engine_health = nullptr;  // attached to the server's health while the server lives
};

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
    health_.SetReady(true);
  }

  ModelManager& models() { return models_; }

  // Returns the limits with the models that are served now.
  MemoryLimits memory_limits() const;

  // Sets what Admin.Reload does. Must be called before SetReady; until then, Admin.Reload returns
  // UNAVAILABLE.
  void SetReload(Reload reload) { admin_.SetReload(std::move(reload)); }

  // Returns the options as they are configured now.
  LifecycleOptions lifecycle();

  // Validates changed options and returns a function that applies those that a reload can change.
  // Reads the files of TLS and of callers again, and returns an error if they are invalid.
  absl::StatusOr<std::function<void()>> Prepare(const ServerOptions& options);

  // Drains in the order above. Blocks for at most drain_delay + drain_timeout + 1 s: what the
  // engine leaves of the timeout, and at least 1 s, is the callers' time to take their answers.
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

  // Returns the callers that are identified at the address of inference and at that of the admin
  // API.
  const Callers* callers() const { return security_->callers(); }
  const Callers* admin_callers() const;
  InferenceParts Parts(InferenceFrontend* frontend, const Callers* callers);
  Phase phase() const;
  void RecordHistory() { history_.Add(parts_.engine->Stats(), parts_.clock->Now()); }
  absl::Status StartGrpc();
  absl::Status StartHttp();
  void StopGrpc(nanoseconds grace);

  const ServerOptions options_;  // the options at the start; reloads do not change them
  const ServerParts parts_;
  const std::unique_ptr<Security> security_;
  EngineCollector collector_;
  TransferWatch transfers_;
  TransferWatch idle_streams_;
  Health health_;
  const int64_t queue_bytes_;    // of each model
  const int64_t process_bytes_;  // what the process took before it served
  CallMemory memory_;
  InferenceFrontend frontend_;
  InferenceFrontend admin_frontend_;
  JobPool preparations_;  // ends before the frontends, which its jobs use
  ModelManager models_;
  JobQueue loads_;    // loads models and configurations
  JobQueue lookups_;  // reads the repository on disk
  InferenceService service_;
  InferenceService admin_service_;  // like service_, with loading and unloading of models
  BucketHistory history_;
  AdminService admin_;
  StatusSource status_;
  Mutex mu_;
  LifecycleOptions lifecycle_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> draining_ = false;
  GrpcPorts ports_;
  EdgeCollector edge_collector_;
  std::unique_ptr<HttpServer> http_;
  // These end before all that they act on.
  std::optional<PeriodicThread> memory_looks_;
  std::optional<PeriodicThread> history_looks_;
};

}  // namespace sluice
