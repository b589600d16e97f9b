#include "engine/cuda/poll.h"

#include <gtest/gtest.h>

#include <chrono>

namespace sluice::testing {
namespace {

using std::chrono::microseconds;

// Polls with a clock that advances by a microsecond at each reading. `done_at` is the call of
// `done` that returns true.
struct Polled {
  Polled(nanoseconds limit, int done_at) {
    MonoTime time{};
    reached = PollFor(
        limit, [&] { return ++calls == done_at; }, [&time] { return time += microseconds(1); });
  }
  int calls = 0;
  bool reached;
};

TEST(PollForTest, EndsWhenItIsDone) {
  const Polled polled(microseconds(10), 3);
  EXPECT_TRUE(polled.reached);
  EXPECT_EQ(polled.calls, 3);
}

TEST(PollForTest, GivesUpAtItsLimit) {
  const Polled polled(microseconds(10), 1000);
  EXPECT_FALSE(polled.reached);
  EXPECT_EQ(polled.calls, 10);
}

TEST(PollForTest, ALimitOfZeroNeverPolls) {
  const Polled polled(nanoseconds(0), 1);
  EXPECT_FALSE(polled.reached);
  EXPECT_EQ(polled.calls, 0);
}

}  // namespace
}  // namespace sluice::testing
