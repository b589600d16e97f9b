// The limits that apply to every gRPC server of the daemon.
#pragma once

#include <cstdint>

#include "grpcpp/server_builder.h"
#include "server/common/options.h"

namespace sluice {

// Bounds memory, messages, metadata, streams, pings, and idle and old connections, as `options`
// say. Refuses compressed messages, because only the caller knows how large they are in memory.
// Never lets two servers share a port.
void ApplyLimits(const GrpcOptions& options, grpc::ServerBuilder* builder);

// Returns the memory of the cgroup or, without a limit there, of the machine.
int64_t AvailableMemory();

// Return the options of their names, or what stands for 0.
int64_t MemoryQuota(const GrpcOptions& options);
int64_t MaxUnreadBytes(const GrpcOptions& options);

}  // namespace sluice
