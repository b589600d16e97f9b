#include "server/daemon/server.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/error_at.h"
#include "base/out_of_memory.h"
#include "base/reason.h"
#include "base/status_macros.h"
#include "server/common/peer.h"
#include "server/common/refusal_log.h"
#include "server/daemon/edge_metrics.h"
#include "server/observe/engine_metrics.h"
#include "server/security/secret_file.h"

namespace sluice {
namespace {

// The minimum time for sending replies after the engine has drained.
constexpr std::chrono::seconds kReplyGrace{1};

SecurityEvents EventsOf(const std::string& callers_file, Metrics* metrics, Clock* clock, Log* log) {
  const auto refusals = std::make_shared<RefusalLog>("refused a call: its caller is unknown", log);
  return {.certificate =
              [metrics, log](const absl::Status& outcome, const TlsIdentity& shown) {
                metrics->OnSecretRead("certificate", outcome.ok());
                metrics->SetCertificateExpiry(shown.expires);
                if (!outcome.ok()) {
                  return log->Error("TLS files refused; the last valid ones stay in use",
                                    {{"reason", std::string(outcome.message())}});
                }
                log->Info("TLS files read",
                          {{"expires", absl::FormatTime(absl::FromChrono(shown.expires))}});
              },
          .callers =
              [callers_file, metrics, log](const absl::Status& outcome) {
                metrics->OnSecretRead("callers", outcome.ok());
                if (outcome.ok() && IsWorldWritable(callers_file)) {
                  log->Warn("every user of this host may change the callers file; run chmod o-w",
                            {{"file", callers_file}});
                }
                if (outcome.ok()) return log->Info("callers file read");
                log->Error("callers file refused; the last valid one stays in use",
                           {{"reason", std::string(outcome.message())}});
              },
          .refused =
              [clock, refusals](const grpc::ServerContextBase& context, const absl::Status& error) {
                // Without memory, the refusal has no line.
                OrOutOfMemory([&] {
                  refusals->Add(clock->Now(), {{"peer", AddressOf(context.peer())},
                                               {"reason", NameOf(ReasonOf(error))},
                                               {"error", std::string(error.message())}});
                  return absl::OkStatus();
                }).IgnoreError();
              }};
}

}  // namespace

Server::Server(const ServerOptions& options, const std::string& version,
               const EngineOptions& engine_options, const ServerParts& parts,
               std::unique_ptr<Security> security)
    : options_(options),
      security_(std::move(security)),
      process_bytes_(parts.resident()),
      context_(options, version, engine_options, parts),
      frontend_(context_, options.grpc),
      service_(context_, frontend_, public_plane()),
      admin_service_(context_, frontend_, admin_plane()),
      admin_(context_, admin_plane().callers),
      lifecycle_(options.lifecycle) {
  context_.models.SetOnChange([this] { LookForModels(); });
  context_.models.SetOnLoad([this](bool ok) { context_.metrics->OnLoad(ok); });
}

// Without authorities for client certificates, the daemon requests no certificate.
void Server::WarnOfCertificates() const {
  if (!options_.tls.client_ca_file.empty() || !security_->callers()->names_certificates()) return;
  context_.log->Warn(
      "the callers file names certificates, but server.tls.client_ca_file is not set, so no caller "
      "can present one; these callers count as anonymous");
}

// Without memory, the readiness follows at the next change.
void Server::LookForModels() {
  const auto look = [this] {
    context_.health.SetWithoutModels(!lifecycle().ready_without_models &&
                                     context_.engine->Models().empty());
    return absl::OkStatus();
  };
  OrOutOfMemory(look).IgnoreError();
}

Plane Server::public_plane() {
  return {.callers = security_->callers(),
          .transfers = &context_.inference.transfers,
          .idle_streams = &context_.inference.idle_streams};
}

// Permission to infer does not include permission to manage, even if the admin API shares the
// address of inference.
Plane Server::admin_plane() {
  const bool identified = options_.admin.secured || options_.admin.on_grpc_address;
  return {.callers = identified ? security_->callers() : nullptr,
          .transfers = &context_.admin.transfers,
          .idle_streams = &context_.admin.idle_streams,
          .manages_models = true};
}

absl::StatusOr<std::function<void()>> Server::Prepare(const ServerOptions& options) {
  SLUICE_RETURN_IF_ERROR(security_->Check());
  return [this, options] {
    // If the files have become invalid since, the last valid ones stay in use and the log reports
    // it.
    security_->Look().IgnoreError();
    WarnOfCertificates();
    frontend_.SetLimits(options.grpc);
    security_->callers()->SetRates(options.rate);
    context_.log->SetLevel(options.log.level);
    if (context_.access != nullptr) context_.access->SetShare(options.log.access_sample);
    {
      MutexLock lock(&mu_);
      lifecycle_ = options.lifecycle;
    }
    LookForModels();
  };
}

Phase Server::phase() const {
  if (context_.health.ready()) return Phase::kServing;
  if (context_.health.failing()) return Phase::kFailing;
  if (context_.health.running()) return Phase::kEmpty;
  return draining_ ? Phase::kDraining : Phase::kStarting;
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      const std::string& version,
                                                      const EngineOptions& engine_options,
                                                      const ServerParts& parts) {
  SLUICE_ASSIGN_OR_RETURN(
      auto security,
      Security::Open(options, parts.clock,
                     EventsOf(options.auth.callers_file, parts.metrics, parts.clock, parts.log)));
  const ServerOptions shared = WithMemoryShares(options);
  SLUICE_RETURN_IF_ERROR(CheckMessageSize(shared.grpc));
  std::unique_ptr<Server> server(new Server(
      shared, version, WithMemoryShares(engine_options, shared.memory.limit_bytes, /*models=*/1),
      parts, std::move(security)));
  server->WarnOfCertificates();
  SLUICE_RETURN_IF_ERROR(server->memory_limits().Check());
  SLUICE_RETURN_IF_ERROR(server->StartHttp());
  SLUICE_RETURN_IF_ERROR(server->StartGrpc());
  server->memory_looks_.emplace(parts.clock, kOverloadInterval, [server = server.get()] {
    Overload& overload = server->context_.overload;
    overload.Look();
    server->ports_.RefuseConnections(overload.refuses_connections());
  });
  server->history_looks_.emplace(parts.clock, BucketHistory::kInterval,
                                 [server = server.get()] { server->RecordHistory(); });
  return server;
}

MemoryLimits Server::memory_limits() const {
  const std::vector<ModelStats> models = context_.engine->Stats();
  MemoryLimits limits =
      ComputeMemoryLimits(options_, context_.engine_options.queue.max_bytes,
                          std::max<int64_t>(std::ssize(models), 1), process_bytes_);
  limits.limit = context_.overload.limit();
  AddModels(models, context_.engine->backend_info().device == "cpu", &limits);
  return limits;
}

RecentActivity::Refusals Server::Refused() const {
  RecentActivity::Refusals refused = context_.activity->refusals();
  const auto add = [&](Reason reason, int64_t count) {
    refused[static_cast<size_t>(reason)] += count;
  };
  add(Reason::kTokenUnknown, security_->callers()->unknown_tokens());
  add(Reason::kCredentialMissing, security_->callers()->missing_credentials());
  return refused;
}

std::string Server::RenderMetrics() const {
  std::vector<prometheus::MetricFamily> all =
      EngineMetrics(*context_.engine, context_.log->dropped());
  std::ranges::move(EdgeMetrics(context_, ports_.Stats(), *security_->callers(), memory_limits()),
                    std::back_inserter(all));
  return context_.metrics->Render(std::move(all));
}

absl::Status Server::StartHttp() {
  if (options_.metrics.address.empty()) return absl::OkStatus();
  HttpHandlers handlers{.metrics = [this] { return RenderMetrics(); },
                        .ready = [this] { return context_.health.ready(); },
                        .live = [this] { return context_.health.live(); }};
  handlers.host = options_.http.host;
  if (options_.http.status_page) {
    const auto source = std::make_shared<StatusSource>(
        context_, [this] { return phase(); }, [this] { return Refused(); });
    handlers.status = [source] { return source->Json(); };
  }
  auto started = HttpServer::Start(options_.metrics.address, std::move(handlers));
  if (!started.ok()) return ErrorAt("server.metrics.address", started.status());
  http_ = *std::move(started);
  return absl::OkStatus();
}

absl::Status Server::StartGrpc() {
  return ports_.Start(options_,
                      {.inference = {&service_, &context_.health},
                       .admin = {&admin_service_, &admin_, &context_.health},
                       .health = {&context_.health}},
                      *security_, context_.log);
}

void Server::StopGrpc(nanoseconds grace) {
  ports_.Stop(grace, [this] {
    context_.health.EndWatches();
    for (ServingContext::Waits* waits : {&context_.inference, &context_.admin, &context_.probes}) {
      waits->transfers.EndIncoming();
      waits->idle_streams.EndIncoming();
    }
  });
}

Server::~Server() {
  history_looks_.reset();
  memory_looks_.reset();
  StopGrpc(nanoseconds(0));
  context_.loads.reset();  // a reload in progress uses the other members
}

// Reads each live option where the daemon uses it, so that a test can find an option that Prepare
// does not apply.
ServerOptions Server::options() {
  ServerOptions options = options_;
  options.grpc.max_rows = frontend_.max_rows();
  options.grpc.stream_stall_timeout_us =
      std::chrono::duration_cast<std::chrono::microseconds>(frontend_.stream_stall_timeout())
          .count();
  options.rate = security_->callers()->rates();
  options.log.level = context_.log->level();
  if (context_.access != nullptr) options.log.access_sample = context_.access->share();
  options.lifecycle = lifecycle();
  return options;
}

LifecycleOptions Server::lifecycle() {
  MutexLock lock(&mu_);
  return lifecycle_;
}

void Server::Drain() {
  draining_ = true;
  context_.health.SetReady(false);
  const LifecycleOptions lifecycle = this->lifecycle();
  {
    Mutex mu;
    CondVar never;
    MutexLock lock(&mu);
    const MonoTime end =
        context_.clock->Now() + std::chrono::microseconds(lifecycle.drain_delay_us);
    while (context_.clock->Now() < end) context_.clock->WaitUntil(&never, &mu, end);
  }
  const MonoTime end =
      context_.clock->Now() + std::chrono::microseconds(lifecycle.drain_timeout_us);
  context_.engine->Drain(end);
  StopGrpc(std::max<nanoseconds>(end - context_.clock->Now(), kReplyGrace));
  http_.reset();
}

}  // namespace sluice
