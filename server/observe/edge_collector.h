// Metrics of connections, calls and callers, which those parts of the server count by themselves.
#pragma once

#include <vector>

#include "base/memory_budget.h"
#include "prometheus/metric_family.h"
#include "server/net/grpc_1_51/transfer_watch.h"
#include "server/net/grpc_ports.h"
#include "server/security/callers.h"

namespace sluice {

// Thread-safe. Reads the counts at each scrape. The objects that the constructor gets outlive the
// collector.
class EdgeCollector {
 public:
  EdgeCollector(const GrpcPorts* ports, const Callers* callers, const TransferWatch* transfers,
                const TransferWatch* idle_streams, const MemoryBudget* unread)
      : ports_(ports),
        callers_(callers),
        transfers_(transfers),
        idle_streams_(idle_streams),
        unread_(unread) {}

  std::vector<prometheus::MetricFamily> Collect() const;

 private:
  const GrpcPorts* const ports_;
  const Callers* const callers_;
  const TransferWatch* const transfers_;
  const TransferWatch* const idle_streams_;
  const MemoryBudget* const unread_;
};

}  // namespace sluice
