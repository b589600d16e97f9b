#include "base/job_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/gate.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

// A pool whose one thread is busy until the gate opens, and the order in which jobs ran.
class BusyPoolTest : public ::testing::Test {
 protected:
  BusyPoolTest() {
    pool_.Post("first", [this] { gate_.Pass(); });
    gate_.AwaitArrivals(1);
  }

  bool Post(const std::string& owner, const std::string& name) {
    return pool_.Post(owner, [this, name] {
      MutexLock lock(&mu_);
      ran_.push_back(name);
      changed_.Signal();
    });
  }

  std::vector<std::string> Run(size_t count) {
    gate_.Open();
    MutexLock lock(&mu_);
    while (ran_.size() < count) changed_.Wait(&mu_);
    return ran_;
  }

  Gate gate_;
  Mutex mu_;
  CondVar changed_;
  std::vector<std::string> ran_;
  JobPool pool_{{.threads = 1, .max_waiting = 8}};
};

TEST_F(BusyPoolTest, OwnersTakeTurnsAndJobsOfOneKeepTheirOrder) {
  for (const char* job : {"a1", "a2", "a3"}) ASSERT_TRUE(Post("a", job));
  ASSERT_TRUE(Post("b", "b1"));
  ASSERT_TRUE(Post("c", "c1"));
  ASSERT_TRUE(Post("b", "b2"));
  EXPECT_THAT(Run(6), ElementsAre("a1", "b1", "c1", "a2", "b2", "a3"));
}

TEST_F(BusyPoolTest, OneOwnerGetsHalfOfThePlacesAndTheNextGetsSome) {
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Post("a", "a"));
  EXPECT_FALSE(Post("a", "refused"));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Post("b", "b"));
  EXPECT_FALSE(Post("b", "refused"));
  EXPECT_TRUE(Post("c", "c"));
  EXPECT_EQ(pool_.waiting(), 7);
  EXPECT_THAT(Run(7), ElementsAre("a", "b", "c", "a", "b", "a", "a"));
  EXPECT_EQ(pool_.waiting(), 0);
  EXPECT_TRUE(Post("a", "a place that was freed"));
}

TEST(JobPoolTest, TheDestructorDropsWaitingJobs) {
  bool ran = false;
  {
    JobPool pool({.threads = 0, .max_waiting = 8});
    ASSERT_TRUE(pool.Post("a", [&] { ran = true; }));
  }
  EXPECT_FALSE(ran);
}

TEST(JobPoolTest, ThreadsRunJobsOfOneOwnerAtTheSameTime) {
  Gate gate;
  JobPool pool({.threads = 2, .max_waiting = 8});
  for (int i = 0; i < 2; ++i) pool.Post("a", [&] { gate.Pass(); });
  gate.AwaitArrivals(2);
  gate.Open();
}

}  // namespace
}  // namespace sluice
