#include "server/common/callback_times.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace sluice {
namespace {

using Event = CallbackTimes::Event;

TEST(CallbackTimesTest, ACallbackIsCountedByItsEventWhenItEnds) {
  CallbackTimes& times = CallbackTimes::OfProcess();
  const uint64_t messages = times.Of(Event::kMessage).all, ends = times.Of(Event::kEnd).all;
  EXPECT_FALSE(CallbackTimes::IsInCallback());
  {
    const CallbackTimes::Scope scope("Method", Event::kMessage);
    EXPECT_TRUE(CallbackTimes::IsInCallback());
    std::thread([] { EXPECT_FALSE(CallbackTimes::IsInCallback()); }).join();
    { const CallbackTimes::Scope inner("Method", Event::kEnd); }
    EXPECT_TRUE(CallbackTimes::IsInCallback()) << "still in the outer callback";
    EXPECT_EQ(times.Of(Event::kMessage).all, messages);
  }
  EXPECT_FALSE(CallbackTimes::IsInCallback());
  EXPECT_EQ(times.Of(Event::kMessage).all, messages + 1);
  EXPECT_EQ(times.Of(Event::kEnd).all, ends) << "the outer one counts";
}

TEST(CallbackTimesTest, TheSlowestIsNamedOnce) {
  CallbackTimes& times = CallbackTimes::OfProcess();
  times.TakeSlowest();
  const uint64_t slow = times.Of(Event::kWritten).slow;
  {
    const CallbackTimes::Scope scope("Slow", Event::kWritten);
    const MonoTime end = Clock::Real()->Now() + 2 * CallbackTimes::kBound;
    while (Clock::Real()->Now() < end) {
    }
  }
  EXPECT_EQ(times.Of(Event::kWritten).slow, slow + 1);
  const auto slowest = times.TakeSlowest();
  ASSERT_TRUE(slowest.has_value());
  EXPECT_EQ(std::string(slowest->method), "Slow");
  EXPECT_EQ(slowest->event, Event::kWritten);
  EXPECT_GE(slowest->took, 2 * CallbackTimes::kBound);
  EXPECT_FALSE(times.TakeSlowest().has_value());
}

TEST(CallbackTimesTest, ACallbackCountsTheBytesOfAllItsMessages) {
  CallbackTimes& times = CallbackTimes::OfProcess();
  const int64_t most = times.most_bytes();
  CallbackTimes::CountBytes(2 * most + 10);
  EXPECT_EQ(times.most_bytes(), most) << "not in a callback";
  {
    const CallbackTimes::Scope scope("Method", Event::kMessage);
    CallbackTimes::CountBytes(most);
    CallbackTimes::CountBytes(1);
  }
  EXPECT_EQ(times.most_bytes(), most + 1);
}

}  // namespace
}  // namespace sluice
