#include "base/interruption.h"

#include <gtest/gtest.h>

#include <thread>

namespace sluice {
namespace {

TEST(InterruptionTest, OnlyTheInnermostScopeOfTheThreadIsChecked) {
  EXPECT_TRUE(CheckInterruption().ok());
  bool cancelled = false;
  const Interruptible outer(
      [&] { return cancelled ? absl::CancelledError("outer") : absl::OkStatus(); });
  EXPECT_TRUE(CheckInterruption().ok());
  cancelled = true;
  EXPECT_EQ(CheckInterruption().message(), "outer");
  {
    const Interruptible inner([] { return absl::DeadlineExceededError("inner"); });
    EXPECT_EQ(CheckInterruption().message(), "inner");
    std::thread([] { EXPECT_TRUE(CheckInterruption().ok()) << "another thread"; }).join();
  }
  EXPECT_EQ(CheckInterruption().message(), "outer");
}

}  // namespace
}  // namespace sluice
