#include "server/server.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "server/call_guard.h"
#include "server/grpc_limits.h"

namespace sluice {
namespace {

// After the engine has drained, only replies on the wire are left.
constexpr std::chrono::seconds kReplyGrace{1};

// A peer's streams end before the daemon is done with their calls, by far when it resets many: only one
// that has so many times its streams is hostile.
constexpr int64_t kLiveCallsPerStream = 2;

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
      transfers_(std::chrono::microseconds(options.grpc.transfer_timeout_us), parts.clock),
      service_({options.grpc.max_rows, traits.max_queue_delay_us}, version, parts.engine, &edge_,
               &health_, parts.statistics, &transfers_),
      admin_(traits, parts.engine, parts.clock, &health_, &transfers_),
      status_(version, traits,
              {.engine = parts.engine,
               .clock = parts.clock,
               .statistics = parts.statistics,
               .activity = parts.activity,
               .phase = [this] { return phase(); }}) {}

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
                        .ready = [this] { return health_.ready(); }};
  if (options_.http.status_page) handlers.status = [this] { return status_.Json(); };
  auto http = HttpServer::Start(options_.metrics.address, std::move(handlers));
  if (!http.ok()) return http.status();
  http_ = *std::move(http);
  return absl::OkStatus();
}

void Server::GuardCalls(grpc::ServerBuilder* builder) {
  const CallGuard::Limits limits = {.max_calls = kLiveCallsPerStream * options_.grpc.max_streams,
                                    .max_metadata_bytes = options_.grpc.max_metadata_bytes};
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> guards;
  guards.push_back(std::make_unique<CallGuard>(
      limits, [this](const CallGuard::Peer& peer) { listener_->Close(peer); }));
  builder->experimental().SetInterceptorCreators(std::move(guards));
}

absl::Status Server::StartGrpc() {
  const int64_t wanted = options_.grpc.connection.max;
  const int64_t connections = ReserveDescriptors(wanted);
  if (connections < wanted) {
    parts_.log->Warn("fewer connections than configured: descriptors are limited (ulimit -n)",
                     {{"connections", connections}, {"server.grpc.connection.max", wanted}});
  }
  auto listener = GrpcListener::Bind(options_.grpc.address, connections);
  if (!listener.ok()) return listener.status();
  listener_ = *std::move(listener);
  if (options_.grpc.reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  ApplyLimits(options_.grpc, &builder);
  auto acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::InsecureServerCredentials());
  GuardCalls(&builder);
  builder.RegisterService(&service_);
  builder.RegisterService(&admin_);
  builder.RegisterService(&health_);
  grpc_ = builder.BuildAndStart();
  if (grpc_ == nullptr) return absl::InternalError("gRPC did not start");
  listener_->Start(std::move(acceptor));
  return absl::OkStatus();
}

void Server::StopGrpc(nanoseconds grace) {
  if (grpc_ == nullptr) return;
  listener_->Stop();
  health_.EndWatches();
  grpc_->Shutdown(std::chrono::system_clock::now() + grace);
  grpc_->Wait();
  grpc_ = nullptr;
}

Server::~Server() { StopGrpc(nanoseconds(0)); }

void Server::Drain() {
  const LifecycleOptions& lifecycle = options_.lifecycle;
  draining_ = true;
  health_.SetReady(false);
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
