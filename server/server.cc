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

// Both take turns, so that more would only wait; callers try again.
constexpr size_t kMaxWaitingLoads = 8;
constexpr size_t kMaxWaitingLookups = 64;

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

// gRPC's library gives reflection to every server of a process that links it.
class Reflection final : public grpc::ServerBuilderOption {
 public:
  explicit Reflection(bool wanted) : wanted_(wanted) {}

  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins, [](const auto& plugin) {
      return dynamic_cast<grpc::reflection::ProtoServerReflectionPlugin*>(plugin.get()) != nullptr;
    });
    if (!wanted_) return;
    plugins->push_back(std::make_unique<grpc::reflection::ProtoServerReflectionPlugin>());
  }

 private:
  const bool wanted_;
};

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
      models_(parts.engine, parts.log),
      loads_(kMaxWaitingLoads),
      lookups_(kMaxWaitingLookups),
      service_(traits.max_queue_delay_us, version, Management::kDenied, Parts()),
      admin_service_(traits.max_queue_delay_us, version, Management::kAllowed, Parts()),
      admin_(traits, parts.engine, parts.clock, &health_, &loads_),
      status_(version, traits,
              {.engine = parts.engine,
               .clock = parts.clock,
               .statistics = parts.statistics,
               .activity = parts.activity,
               .phase = [this] { return phase(); }}),
      lifecycle_(options.lifecycle) {}

InferenceParts Server::Parts() {
  return {.engine = parts_.engine,
          .edge = &edge_,
          .health = &health_,
          .statistics = parts_.statistics,
          .models = &models_,
          .loads = &loads_,
          .lookups = &lookups_};
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
                        .ready = [this] { return health_.ready(); }};
  if (options_.http.status_page) handlers.status = [this] { return status_.Json(); };
  auto http = HttpServer::Start(options_.metrics.address, std::move(handlers));
  if (!http.ok()) return http.status();
  http_ = *std::move(http);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<grpc::Server>> Server::Listen(const std::string& address, bool admin,
                                                             const char* what, int* port) {
  grpc::ServerBuilder builder;
  Harden(options_.grpc, &builder);
  builder.RegisterService(admin ? &admin_service_ : &service_);
  if (admin) builder.RegisterService(&admin_);
  builder.RegisterService(&health_);
  builder.SetOption(std::make_unique<Reflection>(admin && options_.admin.reflection));
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), port);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server != nullptr && *port != 0) return server;
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", address, " for ", what, "; is the port taken?"));
}

absl::Status Server::StartGrpc() {
  const AdminOptions& admin = options_.admin;
  auto server = Listen(options_.grpc.address, admin.on_grpc_address, "gRPC", &grpc_port_);
  if (!server.ok()) return server.status();
  grpc_ = *std::move(server);
  if (admin.address.empty()) return absl::OkStatus();
  server = Listen(admin.address, /*admin=*/true, "the admin API", &admin_port_);
  if (!server.ok()) return server.status();
  admin_grpc_ = *std::move(server);
  return absl::OkStatus();
}

void Server::StopGrpc(nanoseconds grace) {
  health_.EndWatches();
  const auto deadline = std::chrono::system_clock::now() + grace;
  for (std::unique_ptr<grpc::Server>* server : {&grpc_, &admin_grpc_}) {
    if (*server == nullptr) continue;
    (*server)->Shutdown(deadline);
    (*server)->Wait();
    *server = nullptr;
  }
}

Server::~Server() { StopGrpc(nanoseconds(0)); }

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
