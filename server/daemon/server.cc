#include "server/daemon/server.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "server/net/grpc_limits.h"

namespace sluice {
namespace {

// The least time that replies still on the wire get after the engine has drained.
constexpr std::chrono::seconds kReplyGrace{1};

// The numbers of loads and of lookups that may wait. Each kind runs one at a time, so longer queues
// would only mean longer waits; callers should try again later.
constexpr size_t kMaxWaitingLoads = 8;
constexpr size_t kMaxWaitingLookups = 64;

// The number of messages that may wait to be read. They are in gRPC's memory quota.
constexpr int64_t kMaxWaitingMessages = 4096;

RequestLimits LimitsOf(const GrpcOptions& options) {
  return {.max_rows = options.max_rows, .max_reply_bytes = options.max_message_bytes};
}

std::chrono::microseconds StallTimeoutOf(const GrpcOptions& options) {
  return std::chrono::microseconds(options.stream_stall_timeout_us);
}

SecurityEvents TellOf(Metrics* metrics, Log* log) {
  return {.certificate =
              [metrics, log](const absl::Status& outcome, const TlsIdentity& shown) {
                metrics->OnSecretRead("certificate", outcome.ok());
                metrics->SetCertificateExpiry(shown.expires);
                if (!outcome.ok()) {
                  return log->Error("TLS files refused; the last good ones stay in use",
                                    {{"reason", std::string(outcome.message())}});
                }
                log->Info("TLS files read",
                          {{"expires", absl::FormatTime(absl::FromChrono(shown.expires))}});
              },
          .callers =
              [metrics, log](const absl::Status& outcome) {
                metrics->OnSecretRead("callers", outcome.ok());
                if (outcome.ok()) return log->Info("file of callers read");
                log->Error("file of callers refused; the last good one stays in use",
                           {{"reason", std::string(outcome.message())}});
              }};
}

}  // namespace

Server::Server(const ServerOptions& options, const std::string& version,
               const EngineOptions& engine_options, const ServerParts& parts,
               std::unique_ptr<Security> security)
    : options_(options),
      parts_(parts),
      security_(std::move(security)),
      collector_(parts.engine, [log = parts.log] { return log->dropped(); }),
      transfers_(std::chrono::microseconds(options.grpc.transfer_timeout_us),
                 "server.grpc.transfer_timeout", parts.clock, options.grpc.max_calls),
      idle_streams_(std::chrono::microseconds(options.grpc.stream_idle_timeout_us),
                    "server.grpc.stream_idle_timeout", parts.clock, options.grpc.max_calls),
      health_(&transfers_),
      queue_bytes_(engine_options.queue.max_bytes),
      process_bytes_(parts.resident()),
      memory_(ParsedBytes(options_), options_.grpc.max_unread_bytes,
              {.limit = options_.memory.limit_bytes,
               .resident = parts.resident,
               .cut = [this](int64_t bytes) { transfers_.CutLargest(bytes); }}),
      frontend_(LimitsOf(options.grpc), StallTimeoutOf(options.grpc), parts.engine, parts.clock,
                parts.replies, &preparations_, &memory_, parts.metrics, &health_, callers()),
      admin_frontend_(LimitsOf(options.grpc), StallTimeoutOf(options.grpc), parts.engine,
                      parts.clock, parts.replies, &preparations_, &memory_, parts.metrics, &health_,
                      admin_callers()),
      preparations_({.threads = PreparationThreads(), .max_waiting = kMaxWaitingMessages}),
      models_(parts.engine, parts.log,
              options.memory.copy_weights ? FileAccess::kCopy : FileAccess::kMap),
      loads_(kMaxWaitingLoads),
      lookups_(kMaxWaitingLookups),
      service_(engine_options.batch.max_queue_delay_us, version, Management::kDenied,
               Parts(&frontend_, callers())),
      admin_service_(engine_options.batch.max_queue_delay_us, version, Management::kAllowed,
                     Parts(&admin_frontend_, admin_callers())),
      admin_(engine_options, parts.engine, parts.clock, &history_, &health_, &loads_, &transfers_,
             admin_callers()),
      status_(version, engine_options,
              {.engine = parts.engine,
               .clock = parts.clock,
               .statistics = parts.statistics,
               .activity = parts.activity,
               .history = &history_,
               .phase = [this] { return phase(); }}),
      lifecycle_(options.lifecycle),
      edge_collector_(&ports_, callers(), &transfers_, &idle_streams_, &memory_,
                      [this] { return memory_limits(); }) {
  if (parts.engine_health != nullptr) parts.engine_health->Attach(&health_);
}

// Permission to infer does not imply permission to manage, even if the admin API shares the address
// of inference.
const Callers* Server::admin_callers() const {
  return options_.admin.secured || options_.admin.on_grpc_address ? callers() : nullptr;
}

InferenceParts Server::Parts(InferenceFrontend* frontend, const Callers* callers) {
  return {.engine = parts_.engine,
          .frontend = frontend,
          .health = &health_,
          .statistics = parts_.statistics,
          .models = &models_,
          .loads = &loads_,
          .lookups = &lookups_,
          .transfers = &transfers_,
          .idle_streams = &idle_streams_,
          .callers = callers};
}

absl::StatusOr<std::function<void()>> Server::Prepare(const ServerOptions& options) {
  SLUICE_RETURN_IF_ERROR(security_->Check());
  return [this, options] {
    // Were they spoiled since, the last good ones would stay in use, and the log would say so.
    security_->Look().IgnoreError();
    for (InferenceFrontend* frontend : {&frontend_, &admin_frontend_}) {
      frontend->SetLimits(LimitsOf(options.grpc), StallTimeoutOf(options.grpc));
    }
    security_->callers()->SetRates(options.rate);
    parts_.log->SetLevel(options.log.level);
    if (parts_.access != nullptr) parts_.access->SetShare(options.log.access_sample);
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
                                                      const EngineOptions& engine_options,
                                                      const ServerParts& parts) {
  SLUICE_ASSIGN_OR_RETURN(auto security,
                          Security::Open(options, parts.clock, TellOf(parts.metrics, parts.log)));
  const ServerOptions shared = WithMemoryShares(options);
  std::unique_ptr<Server> server(new Server(
      shared, version, WithMemoryShares(engine_options, shared.memory.limit_bytes, /*models=*/1),
      parts, std::move(security)));
  SLUICE_RETURN_IF_ERROR(server->memory_limits().Check());
  SLUICE_RETURN_IF_ERROR(server->StartHttp());
  SLUICE_RETURN_IF_ERROR(server->StartGrpc());
  server->memory_looks_.emplace(parts.clock, kOverloadInterval, [server = server.get()] {
    server->memory_.overload.Look();
    server->ports_.RefuseConnections(server->memory_.overload.refuses_connections());
  });
  server->history_looks_.emplace(parts.clock, BucketHistory::kInterval,
                                 [server = server.get()] { server->RecordHistory(); });
  return server;
}

MemoryLimits Server::memory_limits() const {
  const std::vector<ModelStats> models = parts_.engine->Stats();
  MemoryLimits limits = ComputeMemoryLimits(
      options_, queue_bytes_, std::max<int64_t>(std::ssize(models), 1), process_bytes_);
  AddModels(models, parts_.engine->backend_info().device == "cpu", &limits);
  return limits;
}

absl::Status Server::StartHttp() {
  if (options_.metrics.address.empty()) return absl::OkStatus();
  const auto render = [this] {
    std::vector<prometheus::MetricFamily> snapshots = collector_.Collect();
    std::vector<prometheus::MetricFamily> edge = edge_collector_.Collect();
    std::move(edge.begin(), edge.end(), std::back_inserter(snapshots));
    return parts_.metrics->Render(std::move(snapshots));
  };
  HttpHandlers handlers{.metrics = render,
                        .ready = [this] { return health_.ready(); },
                        .live = [this] { return health_.live(); }};
  handlers.host = options_.http.host;
  if (options_.http.status_page) handlers.status = [this] { return status_.Json(); };
  SLUICE_ASSIGN_OR_RETURN(http_, HttpServer::Start(options_.metrics.address, std::move(handlers)));
  return absl::OkStatus();
}

absl::Status Server::StartGrpc() {
  return ports_.Start(options_,
                      {.inference = {&service_, &health_},
                       .admin = {&admin_service_, &admin_, &health_},
                       .health = {&health_}},
                      *security_, parts_.log);
}

void Server::StopGrpc(nanoseconds grace) {
  ports_.Stop(grace, [this] {
    health_.EndWatches();
    transfers_.EndIncoming();
    idle_streams_.EndIncoming();
  });
}

Server::~Server() {
  history_looks_.reset();
  memory_looks_.reset();
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
  const MonoTime end = parts_.clock->Now() + std::chrono::microseconds(lifecycle.drain_timeout_us);
  parts_.engine->Drain(end);
  StopGrpc(std::max<nanoseconds>(end - parts_.clock->Now(), kReplyGrace));
  http_.reset();
}

}  // namespace sluice
