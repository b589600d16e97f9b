#include "server/calls/reply_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/fake_clock.h"

namespace sluice {
namespace {

class Append : public Delivery {
 public:
  Append(int value, std::vector<int>* to) : value_(value), to_(to) {}
  void Deliver() override { to_->push_back(value_); }

 private:
  const int value_;
  std::vector<int>* const to_;
};

TEST(ReplyThreadTest, DeliversEverythingInOrderBeforeItEnds) {
  std::vector<int> delivered;
  {
    ReplyThread thread;
    for (int i = 0; i < 1000; ++i) thread.Post(std::make_shared<Append>(i, &delivered));
  }
  ASSERT_EQ(delivered.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(delivered[i], i);
}

class Count : public Delivery {
 public:
  explicit Count(std::atomic<int>* count) : count_(count) {}
  void Deliver() override { ++*count_; }

 private:
  std::atomic<int>* const count_;
};

TEST(ReplyThreadTest, DeliversAtTheGivenTimeIfTheDeliveryStillExists) {
  using std::chrono::seconds;
  FakeClock clock;
  const MonoTime start = clock.Now();
  std::vector<int> delivered;
  const auto three = std::make_shared<Append>(3, &delivered);
  const auto one = std::make_shared<Append>(1, &delivered);
  const auto two = std::make_shared<Append>(2, &delivered);
  auto gone = std::make_shared<Append>(-1, &delivered);
  const auto late = std::make_shared<Append>(-2, &delivered);
  {
    ReplyThread thread(&clock);
    thread.PostAt(start + seconds(30), three);
    thread.PostAt(start + seconds(10), one);
    thread.PostAt(start + seconds(20), two);
    thread.PostAt(start + seconds(15), gone);
    thread.PostAt(start + seconds(60), late);
    gone.reset();
    clock.AwaitWaiter(start + seconds(10));
    clock.Advance(seconds(10));
    clock.AwaitWaiter(start + seconds(15));
    EXPECT_EQ(delivered, std::vector<int>{1});
    clock.Advance(seconds(25));  // beyond the times of several deliveries
    clock.AwaitWaiter(start + seconds(60));
  }
  EXPECT_EQ(delivered, (std::vector<int>{1, 2, 3}));
}

TEST(ReplyThreadTest, ManyThreadsMayPost) {
  std::atomic<int> count = 0;
  {
    ReplyThread thread;
    std::vector<std::thread> posters;
    for (int i = 0; i < 4; ++i) {
      posters.emplace_back([&] {
        for (int j = 0; j < 2000; ++j) thread.Post(std::make_shared<Count>(&count));
      });
    }
    for (std::thread& poster : posters) poster.join();
  }
  EXPECT_EQ(count, 8000);
}

}  // namespace
}  // namespace sluice
