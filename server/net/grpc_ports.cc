#include "server/net/grpc_ports.h"

#include <chrono>
#include <utility>

#include "base/error_at.h"
#include "server/common/memory_limits.h"
#include "server/common/peer.h"

namespace sluice {
namespace {

constexpr int64_t kMaxAdminConnections = 256;
constexpr int64_t kMaxProbeConnections = 64;
constexpr int64_t kMaxProbeBytes = 1024;  // of a message
constexpr int64_t kReservedShare = 8;  // an eighth of all calls for operators and for probes each

// Returns the configured number of connections, or the number that the process's descriptors allow
// if that is smaller.
GrpcListener::Limits ConnectionsFor(const ConnectionOptions& options, Log* log) {
  const int64_t connections = ReserveDescriptors(options.max);
  if (connections < options.max) {
    log->Warn("fewer connections than configured: descriptors are limited (ulimit -n)",
              {{"connections", connections}, {"server.grpc.connection.max", options.max}});
  }
  const int64_t others = connections / 10;
  return {connections,
          options.max_per_address > 0 ? options.max_per_address : connections - others};
}

}  // namespace

absl::Status GrpcPorts::Start(const ServerOptions& options, const Services& services,
                              const Security& security, Log* log) {
  const AdminOptions& admin = options.admin;
  const int64_t all_calls = MaxLiveCalls(options);
  const int64_t reserved = all_calls / kReservedShare;
  absl::Status status =
      Open({.address = options.grpc.address,
            .limits = options.grpc,
            .connections = ConnectionsFor(options.grpc.connection, log),
            .max_live_calls = all_calls - 2 * reserved,
            .on_refused = {},
            .on_failed_handshake = {},
            .reflection = options.grpc.reflection || admin.on_grpc_address,
            .credentials = security.Credentials(),
            .services = admin.on_grpc_address ? services.admin : services.inference},
           "grpc", "server.grpc.address", log, &inference_);
  if (status.ok() && !admin.address.empty()) {
    status = Open(
        {.address = admin.address,
         .limits = options.grpc,
         .connections = {kMaxAdminConnections, kMaxAdminConnections},
         .max_live_calls = reserved,
         .on_refused = {},
         .on_failed_handshake = {},
         .reflection = true,
         .credentials = admin.secured ? security.Credentials() : grpc::InsecureServerCredentials(),
         .services = services.admin},
        "admin", "server.admin.address", log, &admin_);
  }
  if (status.ok() && !options.grpc.health_address.empty()) {
    GrpcOptions probes = options.grpc;  // callers are not identified at this address
    probes.max_message_bytes = kMaxProbeBytes;
    status = Open({.address = options.grpc.health_address,
                   .limits = probes,
                   .connections = {kMaxProbeConnections, kMaxProbeConnections},
                   .max_live_calls = reserved,
                   .on_refused = {},
                   .on_failed_handshake = {},
                   .reflection = false,
                   .credentials = grpc::InsecureServerCredentials(),
                   .services = services.health},
                  "health", "server.grpc.health_address", log, &health_);
  }
  return status;
}

absl::Status GrpcPorts::Open(GrpcPort::Options options, const char* name, const char* option,
                             Log* log, std::unique_ptr<GrpcPort>* port) {
  RefusalLog& refusals = refusals_.emplace_back("refused a call: its address has too many", log);
  options.on_refused = [&refusals, name, max = options.max_live_calls](const std::string& address,
                                                                       bool closed) {
    refusals.Add(Clock::Real()->Now(), {{"peer", address},
                                        {"listener", name},
                                        {"limit", max},
                                        {"connection", closed ? "closed" : "kept"}});
  };
  RefusalLog& handshakes = refusals_.emplace_back("a TLS handshake failed", log);
  options.on_failed_handshake = [&handshakes, name](const FailedHandshake& failure) {
    handshakes.Add(Clock::Real()->Now(), {{"peer", AddressOf(failure.peer)},
                                          {"listener", name},
                                          {"reason", NameOf(failure.end)},
                                          {"detail", failure.detail}});
  };
  absl::StatusOr<std::unique_ptr<GrpcPort>> started = GrpcPort::Start(options);
  if (!started.ok()) return ErrorAt(option, started.status());
  *port = *std::move(started);
  MutexLock lock(&mu_);
  open_.emplace_back(name, port->get());
  return absl::OkStatus();
}

void GrpcPorts::Stop(nanoseconds grace, const std::function<void()>& end_watches) {
  const auto deadline = std::chrono::system_clock::now() + grace;
  const auto ports = {inference_.get(), admin_.get(), health_.get()};
  for (GrpcPort* port : ports) {
    if (port != nullptr) port->StopAccepting();
  }
  end_watches();
  for (GrpcPort* port : ports) {
    if (port != nullptr) port->Shutdown(deadline);
  }
}

void GrpcPorts::RefuseConnections(bool refuse) {
  MutexLock lock(&mu_);
  for (const auto& [name, port] : open_) {
    if (port == inference_.get()) port->RefuseConnections(refuse);
  }
}

std::vector<std::pair<const char*, PortStats>> GrpcPorts::Stats() const {
  MutexLock lock(&mu_);
  std::vector<std::pair<const char*, PortStats>> all;
  all.reserve(open_.size());
  for (const auto& [name, port] : open_) {
    all.push_back(
        {name,
         {.connections = port->listener().Stats(), .refused_calls = port->live_calls().refused()}});
  }
  return all;
}

}  // namespace sluice
