#include "server/server.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpc/impl/codegen/compression_types.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace sluice {
namespace {

// After the engine has drained, only replies on the wire are left.
constexpr std::chrono::seconds kReplyGrace{1};

RequestLimits LimitsOf(const GrpcOptions& options) {
  return {.max_rows = options.max_rows, .max_reply_bytes = options.max_message_bytes};
}

int64_t ReadLimit(const char* path) {
  int64_t limit = 0;
  std::ifstream file(path);
  return file >> limit ? limit : INT64_MAX;  // "max" is no number
}

// What gRPC does by default and must not.
void Harden(const GrpcOptions& options, grpc::ServerBuilder* builder) {
  // A message limit alone does not bound memory: data is buffered before its length is checked.
  grpc::ResourceQuota quota("sluice");
  quota.Resize(options.memory_quota_bytes > 0 ? options.memory_quota_bytes : DefaultMemoryQuota());
  builder->SetResourceQuota(quota);
  builder->SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  builder->SetMaxSendMessageSize(static_cast<int>(options.max_message_bytes));
  // Decompression multiplies what a caller can make us hold.
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  // Otherwise two daemons share a port in silence.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

}  // namespace

int64_t DefaultMemoryQuota() {
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  const int64_t cgroup = std::min(ReadLimit("/sys/fs/cgroup/memory.max"),
                                  ReadLimit("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
  return std::min(machine, cgroup) / 4;
}

Server::Server(const ServerOptions& options, const std::string& version, const EngineTraits& traits,
               const ServerParts& parts)
    : options_(options),
      parts_(parts),
      collector_(parts.engine, [log = parts.log] { return log->dropped(); }),
      edge_(LimitsOf(options.grpc), std::chrono::microseconds(options.grpc.stream_stall_timeout_us),
            parts.engine, parts.clock, parts.replies, parts.metrics, &health_),
      service_({options.grpc.max_rows, traits.max_queue_delay_us}, version, parts.engine, &edge_,
               &health_, parts.statistics),
      admin_(traits, parts.engine, parts.clock, &health_),
      status_(version, traits,
              {.engine = parts.engine,
               .clock = parts.clock,
               .statistics = parts.statistics,
               .activity = parts.activity,
               .phase = [this] { return phase(); }}) {
  if (parts.engine_health != nullptr) parts.engine_health->Attach(&health_);
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
  if (options_.grpc.reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  Harden(options_.grpc, &builder);
  builder.AddListeningPort(options_.grpc.address, grpc::InsecureServerCredentials(), &grpc_port_);
  builder.RegisterService(&service_);
  builder.RegisterService(&admin_);
  builder.RegisterService(&health_);
  grpc_ = builder.BuildAndStart();
  if (grpc_ != nullptr && grpc_port_ != 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", options_.grpc.address, " for gRPC; is the port taken?"));
}

void Server::StopGrpc(nanoseconds grace) {
  if (grpc_ == nullptr) return;
  health_.EndWatches();
  grpc_->Shutdown(std::chrono::system_clock::now() + grace);
  grpc_->Wait();
  grpc_ = nullptr;
}

Server::~Server() {
  if (parts_.engine_health != nullptr) parts_.engine_health->Attach(nullptr);
  StopGrpc(nanoseconds(0));
}

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
