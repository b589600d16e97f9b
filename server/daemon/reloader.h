// Reloads the configuration of a running daemon.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "config/config.h"
#include "server/common/log.h"
#include "server/daemon/server.h"
#include "server/observe/metrics.h"

namespace sluice {

// Thread-safe; a reload waits for the one before it, and lasts as long as its models take to load.
//
// The whole configuration is read and validated, files that it names are, and models are loaded and
// warmed up; only then is anything changed. After an error everything is as it was. Options that
// need a restart keep their values and are named; each reload names them again.
class Reloader {
 public:
  // Reads the configuration from where the running one came from.
  using Read = std::function<absl::StatusOr<Config>()>;
  // What is not owned outlives it.
  Reloader(Config running, Read read, Server* server, Metrics* metrics, Log* log);

  // Serves the running configuration's models, as reloads do later.
  absl::Status LoadModels();

  absl::StatusOr<ReloadReport> Reload();

 private:
  absl::StatusOr<ReloadReport> TryReload() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Read read_;
  Server* const server_;
  Metrics* const metrics_;
  Log* const log_;

  Mutex mu_;
  Config running_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
