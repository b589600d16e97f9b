#include "client/ordered_run.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace sluice::client {
namespace {

class OrderedRunTest : public testing::Test {
 protected:
  // Returns a source of the items 0 to count - 1.
  std::function<std::optional<int>()> Source(int count) {
    return [this, count]() -> std::optional<int> {
      absl::MutexLock lock(&mu_);
      if (taken_ == count) return std::nullopt;
      return taken_++;
    };
  }

  absl::Mutex mu_;
  int taken_ ABSL_GUARDED_BY(mu_) = 0;
  int started_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<int> results_ ABSL_GUARDED_BY(mu_);
};

TEST_F(OrderedRunTest, ResultsComeInOrderForEveryConcurrency) {
  constexpr uint64_t kSeed = 5;
  for (const int concurrency : {1, 2, 7}) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " concurrency " << concurrency);
    std::mt19937_64 random(kSeed);
    std::vector<int> expected(200);
    std::iota(expected.begin(), expected.end(), 0);
    std::vector<int> delays(expected.size());
    for (int& delay : delays) delay = static_cast<int>(random() % 2000);
    std::vector<int> results;
    int next = 0;
    OrderedRun<int, int> run(
        [&]() -> std::optional<int> {
          if (next == static_cast<int>(expected.size())) return std::nullopt;
          return next++;
        },
        [&](int item) {
          volatile int work = 0;
          for (int i = 0; i < delays[item]; ++i) work = work + 1;
          return item;
        },
        [&](int result) { results.push_back(result); });
    run.Run(concurrency);
    EXPECT_EQ(results, expected);
  }
}

// Item 0 ends only when the window is full. No further item may have started by then.
TEST_F(OrderedRunTest, OtherItemsContinueDuringASlowOneUpToTheWindow) {
  static constexpr int kConcurrency = 2, kWindow = 16 * kConcurrency;
  OrderedRun<int, int> run(
      Source(100),
      [this](int item) {
        absl::MutexLock lock(&mu_);
        ++started_;
        if (item == 0) {
          const auto full = [this]()
                                ABSL_SHARED_LOCKS_REQUIRED(mu_) { return started_ >= kWindow; };
          mu_.Await(absl::Condition(&full));
        }
        return item;
      },
      [this](int result) {
        absl::MutexLock lock(&mu_);
        results_.push_back(result);
        EXPECT_LE(started_ - static_cast<int>(results_.size()) + 1, kWindow);
      });
  run.Run(kConcurrency);
  absl::MutexLock lock(&mu_);
  EXPECT_EQ(results_.size(), 100);
  EXPECT_TRUE(std::is_sorted(results_.begin(), results_.end()));
}

TEST_F(OrderedRunTest, AnEmptySourceEndsAtOnce) {
  OrderedRun<int, int> run(
      Source(0), [](int item) { return item; }, [](int) { ADD_FAILURE(); });
  run.Run(4);
}

}  // namespace
}  // namespace sluice::client
