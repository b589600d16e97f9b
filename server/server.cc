#include "server/server.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/grpc_limits.h"

namespace sluice {
namespace {

// After the engine has drained, only replies on the wire are left.
constexpr std::chrono::seconds kReplyGrace{1};

// Both take turns, so that more would only wait; callers try again.
constexpr size_t kMaxWaitingLoads = 8;
constexpr size_t kMaxWaitingLookups = 64;
constexpr int64_t kMaxAdminConnections = 256;

RequestLimits LimitsOf(const GrpcOptions& options) {
  return {.max_rows = options.max_rows, .max_reply_bytes = options.max_message_bytes};
}

}  // namespace

Server::Server(const ServerOptions& options, const std::string& version, const EngineTraits& traits,
               const ServerParts& parts)
    : options_(options),
      parts_(parts),
      collector_(parts.engine, [log = parts.log] { return log->dropped(); }),
      edge_(LimitsOf(options.grpc), std::chrono::microseconds(options.grpc.stream_stall_timeout_us),
            parts.engine, parts.clock, parts.replies, parts.metrics, &health_),
      models_(parts.engine, parts.log),
      loads_(kMaxWaitingLoads),
      lookups_(kMaxWaitingLookups),
      transfers_(std::chrono::microseconds(options.grpc.transfer_timeout_us), parts.clock),
      service_(traits.max_queue_delay_us, version, Management::kDenied, Parts()),
      admin_service_(traits.max_queue_delay_us, version, Management::kAllowed, Parts()),
      admin_(traits, parts.engine, parts.clock, &health_, &loads_, &transfers_),
      status_(version, traits,
              {.engine = parts.engine,
               .clock = parts.clock,
               .statistics = parts.statistics,
               .activity = parts.activity,
               .phase = [this] { return phase(); }}),
      lifecycle_(options.lifecycle) {
  if (parts.engine_health != nullptr) parts.engine_health->Attach(&health_);
}

InferenceParts Server::Parts() {
  return {.engine = parts_.engine,
          .edge = &edge_,
          .health = &health_,
          .statistics = parts_.statistics,
          .models = &models_,
          .loads = &loads_,
          .lookups = &lookups_,
          .transfers = &transfers_};
}

absl::StatusOr<std::function<void()>> Server::Prepare(const ServerOptions& options) {
  return [this, options] {
    edge_.SetLimits(LimitsOf(options.grpc),
                    std::chrono::microseconds(options.grpc.stream_stall_timeout_us));
    parts_.log->SetLevel(options.log.level);
    MutexLock lock(&mu_);
    lifecycle_ = options.lifecycle;
  };
}

Phase Server::phase() const {
  if (health_.ready()) return Phase::kServing;
  return draining_ ? Phase::kDraining : Phase::kStarting;
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      const std::string& version,
                                                      const EngineTraits& traits,
                                                      const ServerParts& parts) {
  std::unique_ptr<Server> server(new Server(options, version, traits, parts));
  absl::Status status = server->StartHttp();
  if (status.ok()) status = server->StartGrpc();
  if (!status.ok()) return status;
  return server;
}

absl::Status Server::StartHttp() {
  if (options_.metrics.address.empty()) return absl::OkStatus();
  HttpHandlers handlers{.metrics = [this] { return parts_.metrics->Render(collector_.Collect()); },
                        .ready = [this] { return health_.ready(); },
                        .live = [this] { return health_.live(); }};
  if (options_.http.status_page) handlers.status = [this] { return status_.Json(); };
  auto http = HttpServer::Start(options_.metrics.address, std::move(handlers));
  if (!http.ok()) return http.status();
  http_ = *std::move(http);
  return absl::OkStatus();
}

absl::Status Server::StartGrpc() {
  const AdminOptions& admin = options_.admin;
  const int64_t wanted = options_.grpc.connection.max;
  const int64_t connections = ReserveDescriptors(wanted);
  if (connections < wanted) {
    parts_.log->Warn("fewer connections than configured: descriptors are limited (ulimit -n)",
                     {{"connections", connections}, {"server.grpc.connection.max", wanted}});
  }
  auto port = GrpcPort::Start({.address = options_.grpc.address,
                               .limits = options_.grpc,
                               .max_connections = connections,
                               .reflection = admin.on_grpc_address && admin.reflection,
                               .services = Services(admin.on_grpc_address)});
  if (!port.ok()) return port.status();
  grpc_ = *std::move(port);
  if (admin.address.empty()) return absl::OkStatus();
  port = GrpcPort::Start({.address = admin.address,
                          .limits = options_.grpc,
                          .max_connections = kMaxAdminConnections,
                          .reflection = admin.reflection,
                          .services = Services(/*admin=*/true)});
  if (!port.ok()) return port.status();
  admin_grpc_ = *std::move(port);
  return absl::OkStatus();
}

std::vector<grpc::Service*> Server::Services(bool admin) {
  if (admin) return {&admin_service_, &admin_, &health_};
  return {&service_, &health_};
}

void Server::StopGrpc(nanoseconds grace) {
  const auto deadline = std::chrono::system_clock::now() + grace;
  for (GrpcPort* port : {grpc_.get(), admin_grpc_.get()}) {
    if (port != nullptr) port->StopAccepting();
  }
  health_.EndWatches();
  for (std::unique_ptr<GrpcPort>* port : {&grpc_, &admin_grpc_}) {
    if (*port != nullptr) (*port)->Shutdown(deadline);
  }
}

Server::~Server() {
  if (parts_.engine_health != nullptr) parts_.engine_health->Attach(nullptr);
  StopGrpc(nanoseconds(0));
}

LifecycleOptions Server::lifecycle() {
  MutexLock lock(&mu_);
  return lifecycle_;
}

void Server::Drain() {
  draining_ = true;
  health_.SetReady(false);
  const LifecycleOptions lifecycle = this->lifecycle();
  {
    Mutex mu;
    CondVar never;
    MutexLock lock(&mu);
    const MonoTime end = parts_.clock->Now() + std::chrono::microseconds(lifecycle.drain_delay_us);
    while (parts_.clock->Now() < end) parts_.clock->WaitUntil(&never, &mu, end);
  }
  parts_.engine->Drain(parts_.clock->Now() + std::chrono::microseconds(lifecycle.drain_timeout_us));
  StopGrpc(kReplyGrace);
}

}  // namespace sluice
