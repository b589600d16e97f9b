// A gRPC server at one address, with the daemon's limits.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "server/common/options.h"
#include "server/net/grpc_1_51/call_guard.h"
#include "server/net/grpc_1_51/grpc_listener.h"
#include "server/net/grpc_1_51/live_calls.h"

namespace sluice {

// Start, StopAccepting and Shutdown are called by one thread.
class GrpcPort {
 public:
  struct Options {
    std::string address;
    const GrpcOptions& limits;
    GrpcListener::Limits connections;
    int64_t max_live_calls;  // see LiveCalls
    // Called for each call that is refused because its address has too many calls.
    CallGuard::OnRefused on_refused;
    FailedHandshakes::OnFailed on_failed_handshake;
    bool reflection;
    std::shared_ptr<grpc::ServerCredentials> credentials;
    // Not owned; they outlive the port. Several ports may share a service.
    std::vector<grpc::Service*> services;
  };
  // Listens and serves. Returns the errors of GrpcListener::Bind.
  static absl::StatusOr<std::unique_ptr<GrpcPort>> Start(const Options& options);
  ~GrpcPort() { Shutdown(std::chrono::system_clock::now()); }

  int port() const { return listener_->port(); }
  const GrpcListener& listener() const { return *listener_; }
  const LiveCalls& live_calls() const { return live_calls_; }

  void RefuseConnections(bool refuse) { listener_->Refuse(refuse); }
  void StopAccepting() { listener_->Stop(); }

  // Returns when all calls have ended. Calls that are still running at `deadline` are cancelled.
  void Shutdown(std::chrono::system_clock::time_point deadline);

 private:
  GrpcPort(std::unique_ptr<GrpcListener> listener,
           std::shared_ptr<grpc::ServerCredentials> credentials, int64_t max_live_calls)
      : listener_(std::move(listener)),
        credentials_(std::move(credentials)),
        live_calls_(max_live_calls) {}
  // Makes the listener close the connections of peers that exceed their limits.
  void GuardCalls(const Options& options, grpc::ServerBuilder* builder);

  // The server uses the listener, the credentials and the count of calls.
  const std::unique_ptr<GrpcListener> listener_;
  const std::shared_ptr<grpc::ServerCredentials> credentials_;
  LiveCalls live_calls_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace sluice
