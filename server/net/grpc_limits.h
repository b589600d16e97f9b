// The limits that apply to every gRPC server of the daemon.
#pragma once

#include "grpcpp/server_builder.h"
#include "server/common/options.h"

namespace sluice {

// Limits memory, messages, metadata, streams, pings, and idle and old connections, according to
// `options`. Refuses compressed messages, because only the caller knows their size in memory. Never
// lets two servers share a port. A memory of 0 means unlimited; see WithMemoryShares.
void ApplyLimits(const GrpcOptions& options, grpc::ServerBuilder* builder);

}  // namespace sluice
