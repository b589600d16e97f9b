#include "server/calls/work_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/support/fake_backend.h"

namespace sluice {
namespace {

TEST(WorkThread, RunsInOrderAndRefusesWhatIsTooMuch) {
  std::vector<int> done;
  Gate begun, gate, last;
  begun.Open();
  last.Open();
  WorkThread thread(2);
  EXPECT_TRUE(thread.Post([&] {
    begun.Pass();
    gate.Pass();
    done.push_back(0);
  }));
  begun.AwaitArrivals(1);
  EXPECT_TRUE(thread.Post([&] { done.push_back(1); }));
  EXPECT_TRUE(thread.Post([&] {
    done.push_back(2);
    last.Pass();
  }));
  EXPECT_FALSE(thread.Post([&] { done.push_back(3); })) << "two wait already";
  gate.Open();
  last.AwaitArrivals(1);
  EXPECT_THAT(done, ::testing::ElementsAre(0, 1, 2));
}

TEST(WorkThread, LeavesNothingBehind) {
  auto held = std::make_shared<int>();
  {
    Gate begun, gate;
    begun.Open();
    WorkThread thread(8);
    thread.Post([&] {
      begun.Pass();
      gate.Pass();
    });
    begun.AwaitArrivals(1);
    // The destructor may begin before or after the first job ends, so that these run or not.
    for (int i = 0; i < 3; ++i) thread.Post([held] {});
    gate.Open();
  }
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace sluice
