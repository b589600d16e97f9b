#include "server/daemon/engine_health.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "tests/support/fake_backend.h"

namespace sluice {
namespace {

class EngineHealthTest : public ::testing::Test {
 protected:
  EngineHealthTest() {
    LogOptions options;
    options.level = "error";
    log_ = *Log::Create(options, "/dev/null");
    observer_ = std::make_unique<EngineHealth>(3, log_.get(), [this] { ++hangs_; });
    health_.SetReady(true);
    observer_->Attach(&health_);
  }

  void Fail(const Model& model, int64_t failed) {
    observer_->OnStepFailed(model, absl::InternalError("lost"), failed);
  }

  const std::shared_ptr<const Model> one_ = FakeModel(FakeConfig(), "one");
  const std::shared_ptr<const Model> other_ = FakeModel(FakeConfig(), "other");
  std::unique_ptr<Log> log_;
  int hangs_ = 0;
  TransferWatch transfers_{std::chrono::minutes(1), "an option", Clock::Real()};
  Health health_{&transfers_};
  std::unique_ptr<EngineHealth> observer_;
};

TEST_F(EngineHealthTest, SeveralFailuresInARowMakeTheDaemonNotReady) {
  for (int64_t failed : {1, 2}) Fail(*one_, failed);
  EXPECT_TRUE(health_.ready());
  Fail(*one_, 3);
  EXPECT_FALSE(health_.ready());
  EXPECT_TRUE(health_.live());
  Fail(*one_, 4);
  Fail(*other_, 3);
  observer_->OnStepsRecovered(*one_);
  EXPECT_FALSE(health_.ready()) << "the other model still fails";
  observer_->OnStepsRecovered(*other_);
  EXPECT_TRUE(health_.ready());
}

// A model is still served while the model that replaces it starts to serve.
TEST_F(EngineHealthTest, TheEndOfAReplacedModelDoesNotHideFailuresOfItsSuccessor) {
  const std::shared_ptr<const Model> successor = FakeModel(FakeConfig(), "one");
  Fail(*one_, 3);
  Fail(*successor, 3);
  observer_->OnStepsRecovered(*one_);
  EXPECT_FALSE(health_.ready());
  observer_->OnStepsRecovered(*successor);
  EXPECT_TRUE(health_.ready());
}

TEST_F(EngineHealthTest, FailuresDoNotUndoADrain) {
  health_.SetReady(false);
  Fail(*one_, 3);
  observer_->OnStepsRecovered(*one_);
  EXPECT_FALSE(health_.ready());
}

TEST_F(EngineHealthTest, WithoutTheOptionFailuresDoNotAffectReadiness) {
  EngineHealth never(0, log_.get(), [] {});
  never.Attach(&health_);
  for (int64_t failed = 0; failed < 100; ++failed) {
    never.OnStepFailed(*one_, absl::InternalError("lost"), failed);
  }
  EXPECT_TRUE(health_.ready());
}

TEST_F(EngineHealthTest, AHangIsFinalAndEndsTheProcess) {
  observer_->OnHang(*one_, Hang{});
  EXPECT_FALSE(health_.ready());
  EXPECT_FALSE(health_.live());
  EXPECT_EQ(hangs_, 1);
  health_.SetReady(true);
  observer_->OnStepsRecovered(*one_);
  EXPECT_FALSE(health_.ready());
}

// The loss of the device is reported once, even if other models fail too.
TEST_F(EngineHealthTest, ALostDeviceIsFinalAndEndsTheProcessOnce) {
  for (const auto& model : {one_, other_}) {
    observer_->OnStepFailed(*model, absl::UnavailableError("lost"), 1);
  }
  EXPECT_FALSE(health_.ready());
  EXPECT_FALSE(health_.live());
  EXPECT_EQ(hangs_, 1);
  observer_->OnStepsRecovered(*one_);
  EXPECT_FALSE(health_.ready());
}

TEST_F(EngineHealthTest, FailuresBeforeAttachCount) {
  EngineHealth early(1, log_.get(), [] {});
  early.OnStepFailed(*one_, absl::InternalError("lost"), 1);
  TransferWatch transfers{std::chrono::minutes(1), "an option", Clock::Real()};
  Health health{&transfers};
  health.SetReady(true);
  early.Attach(&health);
  EXPECT_FALSE(health.ready());
  early.Attach(nullptr);
  early.OnStepsRecovered(*one_);
  EXPECT_FALSE(health.ready()) << "failures are no longer reported";
}

}  // namespace
}  // namespace sluice
