// Maps failures of the engine to the health of the daemon.
#pragma once

#include <functional>
#include <set>

#include "base/mutex.h"
#include "engine/observer.h"
#include "server/common/log.h"
#include "server/inference/health.h"

namespace sluice {

// Observes failures of the engine. If consecutive steps of a model fail, the daemon is not ready
// until one of the model's steps succeeds, or the model is replaced or unloaded. If a model hangs
// or its device is lost, the daemon is neither ready nor live; `on_end` is called once and soon
// ends the process. Thread-safe. Owns nothing.
class EngineHealth final : public Observer {
 public:
  // `failed_steps` is described in WatchdogOptions. `log` outlives this object.
  EngineHealth(int64_t failed_steps, Log* log, std::function<void()> on_end)
      : failed_steps_(failed_steps), log_(log), on_end_(std::move(on_end)) {}

  // Reports to `health` from now on, including earlier failures. nullptr ends the reports; it must
  // be passed before `health` is destroyed.
  void Attach(Health* health);

  void OnStepFailed(const Model& model, const absl::Status& status, int64_t failed) override;
  void OnStepsRecovered(const Model& model) override;
  void OnHang(const Model& model, const Hang& hang) override;

 private:
  void End();
  void UpdateHealth() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t failed_steps_;
  Log* const log_;
  const std::function<void()> on_end_;

  Mutex mu_;  // taken before the mutex of Health
  Health* health_ ABSL_GUARDED_BY(mu_) = nullptr;
  // The models whose steps fail. A failing model and the one that replaces it have the same name
  // and version.
  std::set<const Model*> failing_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace sluice
