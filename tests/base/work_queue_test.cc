#include "base/work_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "tests/support/allocation_counter.h"
#include "tests/support/fake_clock.h"
#include "tests/support/gate.h"

namespace sluice {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;

TEST(WorkQueue, ServesAllWaitingItemsBeforeItEnds) {
  std::vector<int> served;
  Gate gate;
  std::optional<WorkQueue<int>> queue;
  queue.emplace(WorkQueue<int>::Options{}, [&](int& item) {
    gate.Pass();
    served.push_back(item);
  });
  for (int i = 0; i < 5; ++i) queue->Post(i);
  gate.Open();
  queue.reset();
  EXPECT_THAT(served, ElementsAre(0, 1, 2, 3, 4));
}

TEST(WorkQueue, AnItemThatIsBeingServedDoesNotCountAsWaiting) {
  Gate begun, gate;
  begun.Open();
  WorkQueue<int> queue({.max_waiting = 2}, [&](int&) {
    begun.Pass();
    gate.Pass();
  });
  EXPECT_TRUE(queue.Post(0));
  begun.AwaitArrivals(1);
  EXPECT_TRUE(queue.Post(1));
  EXPECT_TRUE(queue.Post(2));
  EXPECT_FALSE(queue.Post(3)) << "two wait already";
  gate.Open();
  begun.AwaitArrivals(3);
  EXPECT_TRUE(queue.Post(4));
}

TEST(WorkQueue, PostsWithinTheReserveDoNotAllocateInEitherBuffer) {
  Gate begun, gate;
  begun.Open();
  WorkQueue<int> queue({}, [&](int&) {
    begun.Pass();
    gate.Pass();
  });
  ASSERT_TRUE(queue.Post(0));
  begun.AwaitArrivals(1);  // the thread has taken one buffer, the next posts fill the other
  for (const size_t items : {5, 50}) {
    queue.Reserve(items);
    const int64_t before = Allocations();
    for (size_t i = 0; i < items; ++i) queue.Post(1);
    EXPECT_EQ(Allocations(), before) << items;
  }
  gate.Open();
  begun.AwaitArrivals(56);  // both have been in use
  queue.Reserve(100);
  const int64_t before = Allocations();
  for (int i = 0; i < 100; ++i) queue.Post(1);
  EXPECT_EQ(Allocations(), before);
}

TEST(WorkQueue, ServesItemsWithTimesAtTheirTimesInOrder) {
  FakeClock clock;
  const MonoTime start = clock.Now();
  std::vector<int> served;
  {
    WorkQueue<int> queue({.clock = &clock}, [&](int& item) { served.push_back(item); });
    queue.PostAt(start + seconds(20), 2);
    queue.PostAt(start + seconds(10), 0);
    queue.PostAt(start + seconds(20), 3);
    queue.PostAt(start + seconds(10), 1);
    queue.PostAt(start + seconds(60), 4);
    clock.AwaitWaiter(start + seconds(10));
    clock.Advance(seconds(10));
    clock.AwaitWaiter(start + seconds(20));
    EXPECT_THAT(served, ElementsAre(0, 1));
    clock.Advance(seconds(15));
    clock.AwaitWaiter(start + seconds(60));
  }
  EXPECT_THAT(served, ElementsAre(0, 1, 2, 3)) << "the time of the last one has not come";
}

TEST(WorkQueue, AfterHurryServesEverythingAtOnce) {
  FakeClock clock;
  const MonoTime start = clock.Now();
  std::vector<int> served;
  {
    WorkQueue<int> queue({.clock = &clock}, [&](int& item) { served.push_back(item); });
    queue.PostAt(start + seconds(20), 1);
    queue.PostAt(start + seconds(10), 0);
    clock.AwaitWaiter(start + seconds(10));
    queue.Hurry();
    clock.AwaitWaiter(MonoTime::max());  // waits until nothing is left
    queue.PostAt(start + seconds(30), 2);
  }
  EXPECT_THAT(served, ElementsAre(0, 1, 2));
}

TEST(WorkQueue, ServesTheItemsOfEachThreadInTheirOrder) {
  constexpr int kThreads = 4, kItems = 2000;
  std::vector<std::vector<int>> served(kThreads);
  {
    WorkQueue<std::pair<int, int>> queue(
        {}, [&](std::pair<int, int>& item) { served[item.first].push_back(item.second); });
    std::vector<std::thread> posters;
    for (int thread = 0; thread < kThreads; ++thread) {
      posters.emplace_back([&, thread] {
        for (int i = 0; i < kItems; ++i) queue.Post({thread, i});
      });
    }
    for (std::thread& poster : posters) poster.join();
  }
  for (const std::vector<int>& items : served) {
    ASSERT_EQ(items.size(), kItems);
    for (int i = 0; i < kItems; ++i) ASSERT_EQ(items[i], i);
  }
}

TEST(JobQueue, RunsJobsInOrderAndRefusesTooMany) {
  std::vector<int> done;
  Gate begun, gate, last;
  begun.Open();
  last.Open();
  JobQueue jobs(2);
  EXPECT_TRUE(jobs.Post([&] {
    begun.Pass();
    gate.Pass();
    done.push_back(0);
  }));
  begun.AwaitArrivals(1);
  EXPECT_TRUE(jobs.Post([&] { done.push_back(1); }));
  EXPECT_TRUE(jobs.Post([&] {
    done.push_back(2);
    last.Pass();
  }));
  EXPECT_FALSE(jobs.Post([&] { done.push_back(3); })) << "two wait already";
  gate.Open();
  last.AwaitArrivals(1);
  EXPECT_THAT(done, ElementsAre(0, 1, 2));
}

TEST(JobQueue, DestroysTheJobsThatItNeverRan) {
  auto held = std::make_shared<int>();
  {
    Gate begun, gate;
    begun.Open();
    JobQueue jobs(8);
    jobs.Post([&] {
      begun.Pass();
      gate.Pass();
    });
    begun.AwaitArrivals(1);
    // The destructor may begin before or after the first job ends, so these run or do not run.
    for (int i = 0; i < 3; ++i) jobs.Post([held] {});
    gate.Open();
  }
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace sluice
