// Metrics of connections, calls and callers, which those parts of the server count by themselves.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "prometheus/metric_family.h"
#include "server/common/call_memory.h"
#include "server/common/memory_limits.h"
#include "server/net/grpc_1_51/transfer_watch.h"
#include "server/net/grpc_ports.h"
#include "server/security/callers.h"

namespace sluice {

// Thread-safe. Reads the counts at each scrape. The objects that the constructor gets outlive the
// collector.
class EdgeCollector {
 public:
  EdgeCollector(const GrpcPorts* ports, const Callers* callers, const TransferWatch* transfers,
                const TransferWatch* idle_streams, const CallMemory* memory,
                std::function<MemoryLimits()> limits)
      : ports_(ports),
        callers_(callers),
        transfers_(transfers),
        idle_streams_(idle_streams),
        memory_(memory),
        limits_(std::move(limits)) {}

  std::vector<prometheus::MetricFamily> Collect() const;

 private:
  const GrpcPorts* const ports_;
  const Callers* const callers_;
  const TransferWatch* const transfers_;
  const TransferWatch* const idle_streams_;
  const CallMemory* const memory_;
  const std::function<MemoryLimits()> limits_;
};

}  // namespace sluice
