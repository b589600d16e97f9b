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

// Reloads the configuration. Thread-safe; a reload waits for the previous one, and takes as long to
// run as its models take to load.
//
// Nothing changes until the whole configuration and its files have been read and validated, and the
// models have been loaded and warmed up. After an error nothing has changed. Options that need a
// restart keep their values and are named in the report of each reload.
class Reloader {
 public:
  // Reads the configuration from its original source.
  using Read = std::function<absl::StatusOr<Config>()>;
  // `server`, `metrics` and `log` are not owned and outlive the reloader.
  Reloader(Config running, Read read, Server* server, Metrics* metrics, Log* log);

  // Loads the models of the running configuration, in the same way as reloads do.
  absl::Status LoadModels();

  // Returns the errors of `read`, of Server::Prepare and of ModelManager::Apply.
  absl::StatusOr<ReloadReport> Reload();

 private:
  absl::StatusOr<ReloadReport> TryReload() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Tell(const absl::StatusOr<ReloadReport>& report);  // to the log

  const Read read_;
  Server* const server_;
  Metrics* const metrics_;
  Log* const log_;

  Mutex mu_;
  Config running_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
