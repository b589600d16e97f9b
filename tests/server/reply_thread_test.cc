#include "server/reply_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

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

TEST(ReplyThreadTest, DeliversInOrderAndEverythingBeforeItEnds) {
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

TEST(ReplyThreadTest, ManyMayPost) {
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
