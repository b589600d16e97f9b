#include "server/net/grpc_port.h"

#include <utility>

#include "base/status_macros.h"
#include "grpcpp/security/server_credentials.h"
#include "server/net/grpc_1_51/call_guard.h"
#include "server/net/grpc_1_51/reflection_choice.h"
#include "server/net/grpc_limits.h"

namespace sluice {
namespace {

// The number of calls per permitted stream above which a peer counts as hostile. It is more than
// one, because streams end before the daemon has finished their calls, and long before if the peer
// resets many streams.
constexpr int64_t kLiveCallsPerStream = 2;

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcPort>> GrpcPort::Start(const Options& options) {
  SLUICE_ASSIGN_OR_RETURN(auto listener, GrpcListener::Bind(options.address, options.connections,
                                                            options.on_failed_handshake));
  std::unique_ptr<GrpcPort> port(
      new GrpcPort(std::move(listener), options.credentials, options.max_live_calls));
  grpc::ServerBuilder builder;
  ApplyLimits(options.limits, &builder);
  auto acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, port->credentials_);
  port->GuardCalls(options, &builder);
  builder.SetOption(ChooseReflection(options.reflection));
  for (grpc::Service* service : options.services) builder.RegisterService(service);
  port->server_ = builder.BuildAndStart();
  if (port->server_ == nullptr) return absl::InternalError("gRPC did not start");
  port->listener_->Start(std::move(acceptor));
  return port;
}

void GrpcPort::GuardCalls(const Options& options, grpc::ServerBuilder* builder) {
  const GrpcOptions& limits = options.limits;
  const CallGuard::Limits guarded = {.max_calls = kLiveCallsPerStream * limits.max_streams,
                                     .max_metadata_bytes = limits.max_metadata_bytes};
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> guards;
  guards.push_back(std::make_unique<CallGuard>(
      guarded, &live_calls_,
      [listener = listener_.get()](const CallGuard::Peer& peer, bool whole_address) {
        whole_address ? listener->CloseAddressOf(peer) : listener->Close(peer);
      },
      options.on_refused));
  builder->experimental().SetInterceptorCreators(std::move(guards));
  builder->SetContextAllocator(CallGuard::Contexts(&live_calls_));
}

void GrpcPort::Shutdown(std::chrono::system_clock::time_point deadline) {
  listener_->Stop();
  if (server_ == nullptr) return;
  server_->Shutdown(deadline);
  server_->Wait();
  server_ = nullptr;
}

}  // namespace sluice
