#include "server/daemon/reloader.h"

#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/out_of_memory.h"
#include "base/status_macros.h"
#include "config/option.h"

namespace sluice {

Reloader::Reloader(Config running, Read read, Server* server, Metrics* metrics, Log* log)
    : read_(std::move(read)),
      server_(server),
      metrics_(metrics),
      log_(log),
      running_(std::move(running)) {}

absl::Status Reloader::LoadModels() {
  MutexLock lock(&mu_);
  return OrOutOfMemory(
      [&] { return server_->models().Apply(running_.models, running_.model_repository).status(); });
}

absl::StatusOr<ReloadReport> Reloader::Reload() {
  MutexLock lock(&mu_);
  absl::StatusOr<ReloadReport> report = OrOutOfMemory([this] { return TryReload(); });
  metrics_->OnReload(report.ok(), report.ok() ? std::span<const std::string>(report->needs_restart)
                                              : std::span<const std::string>());
  const auto tell = [&] {
    Tell(report);
    return absl::OkStatus();
  };
  OrOutOfMemory(tell).IgnoreError();  // without memory, no log record
  return report;
}

void Reloader::Tell(const absl::StatusOr<ReloadReport>& report) {
  if (!report.ok()) {
    log_->Error("reload failed; nothing was changed",
                {{"reason", std::string(report.status().message())}});
    return;
  }
  log_->Info("reloaded", {{"applied", absl::StrJoin(report->applied, " ")}});
  if (!report->needs_restart.empty()) {
    log_->Warn("changed options need a restart",
               {{"options", absl::StrJoin(report->needs_restart, " ")}});
  }
}

absl::StatusOr<ReloadReport> Reloader::TryReload() {
  SLUICE_ASSIGN_OR_RETURN(const Config loaded, read_());
  Config next = running_;
  ReloadReport report;
  for (const Option& option : Options()) {
    if (option.format(loaded) == option.format(running_)) continue;
    if (option.live) option.copy(loaded, &next);
    (option.live ? report.applied : report.needs_restart).push_back(option.path);
  }
  next.models = loaded.models;
  if (next.models != running_.models) report.applied.emplace_back("models");
  // Every step that can fail runs before the first change that is visible to callers.
  SLUICE_ASSIGN_OR_RETURN(const std::function<void()> apply, server_->Prepare(next.server));
  SLUICE_ASSIGN_OR_RETURN(report.models,
                          server_->models().Apply(next.models, next.model_repository));
  apply();
  running_ = std::move(next);
  return report;
}

}  // namespace sluice
