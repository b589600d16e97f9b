// Metrics of connections, calls, callers and memory, counted by the server.
#pragma once

#include <vector>

#include "prometheus/metric_family.h"
#include "server/common/memory_limits.h"
#include "server/inference/serving_context.h"
#include "server/net/grpc_ports.h"
#include "server/security/callers.h"

namespace sluice {

// Returns the current counts.
std::vector<prometheus::MetricFamily> EdgeMetrics(const ServingContext& context,
                                                  const GrpcPorts& ports, const Callers& callers,
                                                  const MemoryLimits& limits);

}  // namespace sluice
