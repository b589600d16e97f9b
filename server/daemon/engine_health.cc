#include "server/daemon/engine_health.h"

#include "base/clock.h"

namespace sluice {

void EngineHealth::Attach(Health* health) {
  MutexLock lock(&mu_);
  health_ = health;
  UpdateHealth();
}

void EngineHealth::UpdateHealth() {
  if (health_ == nullptr) return;
  health_->SetFailing(!failing_.empty());
  if (ending_) health_->SetHung();
}

void EngineHealth::OnStepFailed(const Model& model, const absl::Status& status, int64_t failed) {
  if (absl::IsUnavailable(status)) {
    log_->Error("lost the device; the process exits and must be restarted",
                {{"model", model.name},
                 {"version", model.version},
                 {"error", std::string(status.message())}});
    End();
    return;
  }
  if (failed_steps_ == 0 || failed != failed_steps_) return;
  log_->Error("not ready: steps are failing", {{"model", model.name},
                                               {"version", model.version},
                                               {"failed", failed},
                                               {"error", std::string(status.message())}});
  MutexLock lock(&mu_);
  failing_.insert(&model);
  UpdateHealth();
}

void EngineHealth::OnStepsRecovered(const Model& model) {
  MutexLock lock(&mu_);
  if (failing_.erase(&model) == 0) return;
  log_->Info("steps no longer fail", {{"model", model.name}, {"version", model.version}});
  UpdateHealth();
}

void EngineHealth::OnHang(const Model& model, const Hang& hang) {
  const bool replay = hang.in_step;
  log_->Error("the model hung; the process exits and must be restarted",
              {{"model", model.name},
               {"version", model.version},
               {"in", replay ? "replay" : "scheduling"},
               {"lasted_s", Seconds(hang.watched)},
               {"allowed_s", Seconds(hang.allowed)}});
  End();
}

void EngineHealth::End() {
  {
    MutexLock lock(&mu_);
    if (ending_) return;
    ending_ = true;
    UpdateHealth();
  }
  on_end_();
}

}  // namespace sluice
