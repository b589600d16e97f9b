// Metrics of connections, calls, callers and memory, counted by the server.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "prometheus/metric_family.h"
#include "server/common/memory_limits.h"
#include "server/inference/serving_context.h"
#include "server/net/grpc_ports.h"
#include "server/security/callers.h"

namespace sluice {

// Returns the current counts. `ports` are GrpcPorts::Stats.
std::vector<prometheus::MetricFamily> EdgeMetrics(
    const ServingContext& context, std::span<const std::pair<const char*, PortStats>> ports,
    const Callers& callers, const MemoryLimits& limits);

}  // namespace sluice
