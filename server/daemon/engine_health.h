// The effect of failures of the engine on the daemon.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "engine/observer.h"
#include "server/common/log.h"
#include "server/inference/health.h"

namespace sluice {

// Observes failures of the engine. A model whose steps fail one after the other makes the daemon
// not ready until one of its steps succeeds. A model that hangs, or whose device is lost, makes the
// daemon neither ready nor live, and calls `on_end` once, which ends the process soon. Thread-safe.
// Owns nothing.
class EngineHealth final : public Observer {
 public:
  // `failed_steps` is described in WatchdogOptions. `log` outlives this object.
  EngineHealth(int64_t failed_steps, Log* log, std::function<void()> on_end)
      : failed_steps_(failed_steps), log_(log), on_end_(std::move(on_end)) {}

  // Reports to `health` from now on, including failures that have happened already. nullptr ends
  // the reports; it must be passed before `health` is destroyed.
  void Attach(Health* health);

  void OnStepFailed(const Model& model, const absl::Status& status, int64_t failed) override;
  void OnStepsRecovered(const Model& model) override;
  void OnHang(const Model& model, const Hang& hang) override;

 private:
  void End();
  void Tell() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t failed_steps_;
  Log* const log_;
  const std::function<void()> on_end_;

  Mutex mu_;  // taken before the mutex of Health
  Health* health_ ABSL_GUARDED_BY(mu_) = nullptr;
  // The names and versions of the models whose steps fail.
  std::set<std::pair<std::string, int64_t>> failing_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace sluice
