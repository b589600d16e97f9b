// The limits that apply to every gRPC server of the daemon.
#pragma once

#include "grpcpp/server_builder.h"
#include "server/common/options.h"

namespace sluice {

// Bounds memory, messages, metadata, streams, pings, and idle and old connections, as `options`
// say. Refuses compressed messages, because only the caller knows how large they are in memory.
// Never lets two servers share a port. A memory of 0 is unbounded; see WithMemoryShares.
void ApplyLimits(const GrpcOptions& options, grpc::ServerBuilder* builder);

}  // namespace sluice
