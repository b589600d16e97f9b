#include "server/calls/reply_thread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <latch>
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
    clock.Advance(seconds(25));  // past the times of several deliveries
    clock.AwaitWaiter(start + seconds(60));
  }
  EXPECT_EQ(delivered, (std::vector<int>{1, 2, 3}));
}

// Waits for the other delivery of its pair.
class Meet : public Delivery {
 public:
  explicit Meet(std::latch* latch) : latch_(latch) {}
  void Deliver() override { latch_->arrive_and_wait(); }

 private:
  std::latch* const latch_;
};

// The deliveries of each call arrive in order, although the calls wait for each other.
TEST(ReplyThreadsTest, ASlowCallDelaysNoCallOfAnotherThread) {
  std::vector<int> delivered[2];
  {
    std::deque<std::latch> meetings;
    ReplyThreads threads(2);
    ReplyThread* const of_call[] = {threads.OfNextCall(), threads.OfNextCall()};
    EXPECT_NE(of_call[0], of_call[1]);
    EXPECT_EQ(threads.OfNextCall(), of_call[0]);
    for (int i = 0; i < 100; ++i) {
      std::latch* const meeting = &meetings.emplace_back(2);
      for (int call : {0, 1}) {
        of_call[call]->Post(std::make_shared<Append>(i, &delivered[call]));
        of_call[call]->Post(std::make_shared<Meet>(meeting));
      }
    }
  }
  for (const std::vector<int>& each : delivered) {
    ASSERT_EQ(each.size(), 100u);
    EXPECT_TRUE(std::is_sorted(each.begin(), each.end()));
  }
}

// Counts down when it is delivered.
class Arrive : public Delivery {
 public:
  explicit Arrive(std::latch* latch) : latch_(latch) {}
  void Deliver() override { latch_->count_down(); }

 private:
  std::latch* const latch_;
};

TEST(ReplyThreadsTest, FewRepliesWaitForASlowOne) {
  std::latch long_one(2);
  std::latch behind(ReplyThreads::kFew - 1);
  {
    ReplyThreads threads(2);
    threads.Post(std::make_shared<Meet>(&long_one));
    for (int i = 1; i < ReplyThreads::kFew; ++i) threads.Post(std::make_shared<Arrive>(&behind));
    // These end although the slow one does not.
    for (int i = 0; i < 1000; ++i) {
      std::latch delivered(1);
      threads.Post(std::make_shared<Arrive>(&delivered));
      delivered.wait();
    }
    EXPECT_FALSE(behind.try_wait());
    long_one.arrive_and_wait();
  }
  EXPECT_TRUE(behind.try_wait());
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
