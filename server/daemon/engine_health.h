// What becomes of the daemon when its engine fails.
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

// A model whose steps fail, one after the other, makes the daemon not ready until one succeeds; one
// that hangs, or whose device is lost, makes it neither ready nor live, and calls `on_end` once,
// which ends the process soon. Thread-safe. Owns nothing.
class EngineHealth final : public Observer {
 public:
  // `failed_steps`: see WatchdogOptions.
  EngineHealth(int64_t failed_steps, Log* log, std::function<void()> on_end)
      : failed_steps_(failed_steps), log_(log), on_end_(std::move(on_end)) {}

  // Reports to `health` from now on, beginning with what happened before. nullptr ends that.
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

  Mutex mu_;  // taken before the health's
  Health* health_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::set<std::pair<std::string, int64_t>> failing_ ABSL_GUARDED_BY(mu_);  // names and versions
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace sluice
