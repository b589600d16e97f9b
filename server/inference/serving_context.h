// The parts of the daemon that all calls share, at every address.
//
// Ownership: main makes the parts of ServerParts and destroys them after the server. The server
// makes one ServingContext and destroys it after all users: the services, the ports and the
// threads. Nothing else owns a part, so services hold references.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/memory_budget.h"
#include "base/resident_memory.h"
#include "base/work_queue.h"
#include "engine/engine.h"
#include "server/calls/reply_thread.h"
#include "server/common/log.h"
#include "server/common/options.h"
#include "server/common/overload.h"
#include "server/common/refusal_log.h"
#include "server/inference/health.h"
#include "server/models/model_manager.h"
#include "server/net/grpc_1_51/transfer_watch.h"
#include "server/observe/access_log.h"
#include "server/observe/bucket_history.h"
#include "server/observe/metrics.h"
#include "server/observe/recent_activity.h"
#include "server/observe/statistics.h"

namespace sluice {

// The parts that exist before the server and outlive it. A server needs all of them except
// `access`, which is nullptr if requests are not logged.
struct ServerParts {
  Engine* engine;
  Clock* clock;
  Metrics* metrics = nullptr;
  Statistics* statistics = nullptr;
  RecentActivity* activity = nullptr;
  ReplyThreads* replies = nullptr;
  Log* log = nullptr;
  AccessLog* access = nullptr;
  std::function<int64_t()> resident = ResidentBytes;  // the memory of the process
  // Returns an error if loads of models must end, because the process does.
  std::function<absl::Status()> interrupted = [] { return absl::OkStatus(); };
};

// Every part is thread-safe.
struct ServingContext : ServerParts {
  // Requires that both options are WithMemoryShares.
  ServingContext(const ServerOptions& options, std::string daemon_version,
                 const EngineOptions& for_engine, const ServerParts& parts);

  // Counts a request that was refused before it reached the engine; see Observer::OnRejected.
  void OnRejected(std::string_view model, Reason reason) {
    metrics->OnRejected(model, reason);
    activity->OnRejected(model, reason);
  }

  const std::string version;           // of the daemon
  const std::string instance;          // 16 random hexadecimal digits, drawn at each start
  const EngineOptions engine_options;  // as shown to clients
  // The waits for peers, with limits of their own for each address, so that callers for inference
  // cannot take the places of operators and probes.
  struct Waits {
    Waits(const char* listener, int64_t most, const GrpcOptions& options, Clock* clock, Log* log);

    RefusalLog too_many_calls;
    RefusalLog too_many_streams;
    TransferWatch transfers;     // limits the time of each message and answer
    TransferWatch idle_streams;  // limits the time of idle streams
  };
  Waits inference, admin, probes;  // `probes` is for health checks at every address
  Health health;
  MemoryBudget parsed;  // for messages while they are parsed and validated
  MemoryBudget unread;  // for answers until their callers have read them
  Overload overload;
  ModelManager models;
  // Blocking jobs of callers. One job of each kind runs at a time, and few may wait. The server
  // ends `loads` before the parts that a reload changes; no call may use `loads` from then on.
  std::optional<JobQueue> loads;  // load models and configurations
  JobQueue lookups;               // read the repository on disk
  BucketHistory history;
};

}  // namespace sluice
