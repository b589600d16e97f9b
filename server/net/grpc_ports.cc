#include "server/net/grpc_ports.h"

#include <chrono>
#include <utility>

#include "base/status_macros.h"

namespace sluice {
namespace {

constexpr int64_t kMaxAdminConnections = 256;
constexpr int64_t kMaxProbeConnections = 64;
constexpr int64_t kMaxProbeBytes = 1024;  // of a message

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
  absl::Status status =
      Open({.address = options.grpc.address,
            .limits = options.grpc,
            .connections = ConnectionsFor(options.grpc.connection, log),
            .reflection = options.grpc.reflection || admin.on_grpc_address,
            .credentials = security.Credentials(),
            .services = admin.on_grpc_address ? services.admin : services.inference},
           "grpc", &inference_);
  if (status.ok() && !admin.address.empty()) {
    status = Open(
        {.address = admin.address,
         .limits = options.grpc,
         .connections = {kMaxAdminConnections, kMaxAdminConnections},
         .reflection = true,
         .credentials = admin.secured ? security.Credentials() : grpc::InsecureServerCredentials(),
         .services = services.admin},
        "admin", &admin_);
  }
  if (status.ok() && !options.grpc.health_address.empty()) {
    GrpcOptions probes = options.grpc;  // callers are not identified at this address
    probes.max_message_bytes = kMaxProbeBytes;
    status = Open({.address = options.grpc.health_address,
                   .limits = probes,
                   .connections = {kMaxProbeConnections, kMaxProbeConnections},
                   .reflection = false,
                   .credentials = grpc::InsecureServerCredentials(),
                   .services = services.health},
                  "health", &health_);
  }
  return status;
}

absl::Status GrpcPorts::Open(const GrpcPort::Options& options, const char* name,
                             std::unique_ptr<GrpcPort>* port) {
  SLUICE_ASSIGN_OR_RETURN(*port, GrpcPort::Start(options));
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

std::vector<std::pair<const char*, ListenerStats>> GrpcPorts::Stats() const {
  MutexLock lock(&mu_);
  std::vector<std::pair<const char*, ListenerStats>> all;
  all.reserve(open_.size());
  for (const auto& [name, port] : open_) all.emplace_back(name, port->listener().Stats());
  return all;
}

}  // namespace sluice
