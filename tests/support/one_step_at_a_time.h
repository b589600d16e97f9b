// Wraps a backend so that it never runs a step ahead.
#pragma once

#include <memory>
#include <utility>

#include "engine/backend.h"

namespace sluice {

class OneStepAtATime final : public Backend {
 public:
  explicit OneStepAtATime(std::unique_ptr<Backend> backend)
      : backend_(std::move(backend)), info_(backend_->info()) {
    info_.steps_ahead = 0;
  }

  const BackendInfo& info() const override { return info_; }
  int64_t FreeMemory() const override { return backend_->FreeMemory(); }
  absl::StatusOr<std::unique_ptr<ExecutableModel>> Load(
      std::shared_ptr<const Model> model) override {
    return backend_->Load(std::move(model));
  }

 private:
  const std::unique_ptr<Backend> backend_;
  BackendInfo info_;
};

}  // namespace sluice
