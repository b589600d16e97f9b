// What every gRPC server of the daemon is held to.
#pragma once

#include <cstdint>

#include "grpcpp/server_builder.h"
#include "server/common/options.h"

namespace sluice {

// Bounds memory, messages, metadata, streams, pings, idle and old connections, as `options` say;
// refuses compressed messages, whose size in memory only the caller knows; and never shares a port.
void ApplyLimits(const GrpcOptions& options, grpc::ServerBuilder* builder);

// A quarter of what the cgroup, or else the machine, has.
int64_t DefaultMemoryQuota();

}  // namespace sluice
