// Warms fake models up.
#pragma once

#include <memory>

#include "engine/runner/models/warm_up.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"

namespace sluice {

class WarmUpTest : public ::testing::Test {
 protected:
  absl::StatusOr<PreparedModel> Run(const EngineOptions& options) {
    return WarmUp(model_, options, &backend_, &clock_, &observer_);
  }

  FakeClock clock_;
  RecordingObserver observer_;
  FakeBackend backend_;
  std::shared_ptr<const Model> model_ = FakeModel(FakeConfig());
};

}  // namespace sluice
