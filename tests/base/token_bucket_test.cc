#include "base/token_bucket.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const MonoTime kStart{std::chrono::hours(1)};

TEST(TokenBucketTest, GrantsABurstAndThenTheRate) {
  TokenBucket bucket;
  const BucketRate rate{.per_second = 10, .burst = 3};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(bucket.Take(1, rate, kStart), nanoseconds(0));
  EXPECT_EQ(bucket.Take(1, rate, kStart), milliseconds(100));
  EXPECT_EQ(bucket.Take(1, rate, kStart + milliseconds(40)), milliseconds(60));
  EXPECT_EQ(bucket.Take(1, rate, kStart + milliseconds(100)), nanoseconds(0));
  EXPECT_EQ(bucket.Take(1, rate, kStart + milliseconds(100)), milliseconds(100));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(bucket.Take(1, rate, kStart + seconds(100)), nanoseconds(0)) << "a full bucket";
  }
  EXPECT_GT(bucket.Take(1, rate, kStart + seconds(100)), nanoseconds(0));
}

TEST(TokenBucketTest, GrantsEverythingWithoutARate) {
  TokenBucket bucket;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(bucket.Take(1e12, {}, kStart), nanoseconds(0));
}

TEST(TokenBucketTest, GrantsAnAmountAboveTheBurstAsDebt) {
  TokenBucket bucket;
  const BucketRate rate{.per_second = 100, .burst = 50};
  EXPECT_EQ(bucket.Take(200, rate, kStart), nanoseconds(0));
  EXPECT_EQ(bucket.Take(1, rate, kStart), milliseconds(1510));
  EXPECT_EQ(bucket.Take(200, rate, kStart), seconds(2)) << "when it is full";
  EXPECT_EQ(bucket.Take(200, rate, kStart + seconds(2)), nanoseconds(0));
}

TEST(TokenBucketTest, AReturnedAmountCanBeTakenAgain) {
  TokenBucket bucket;
  const BucketRate rate{.per_second = 10, .burst = 10};
  EXPECT_EQ(bucket.Take(10, rate, kStart), nanoseconds(0));
  bucket.Return(4, rate);
  EXPECT_EQ(bucket.Take(4, rate, kStart), nanoseconds(0));
  EXPECT_EQ(bucket.Take(1, rate, kStart), milliseconds(100));
  bucket.Return(1000, rate);
  EXPECT_EQ(bucket.Take(10, rate, kStart), nanoseconds(0));
  EXPECT_GT(bucket.Take(1, rate, kStart), nanoseconds(0)) << "a full bucket gains nothing";
}

TEST(TokenBucketTest, ExtremeAmountsAndRatesDoNotOverflow) {
  TokenBucket bucket;
  const BucketRate slow{.per_second = 1e-9, .burst = 1};
  EXPECT_EQ(bucket.Take(1e18, slow, kStart), nanoseconds(0));
  EXPECT_EQ(bucket.Take(1e18, slow, kStart), std::chrono::hours(24));
}

// Over any period the bucket grants at most burst + rate * time, and a caller that waits for the
// returned time gets its amount.
TEST(TokenBucketTest, RandomCallersStayWithinTheRate) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const BucketRate rate{.per_second = 1 + static_cast<double>(random() % 1000),
                          .burst = 1 + static_cast<double>(random() % 100)};
    TokenBucket bucket;
    MonoTime now = kStart;
    double given = 0;
    for (int i = 0; i < 500; ++i) {
      const double amount = 1 + static_cast<double>(random() % static_cast<uint64_t>(rate.burst));
      const nanoseconds wait = bucket.Take(amount, rate, now);
      if (wait == nanoseconds(0)) {
        given += amount;
      } else if (random() % 2 == 0) {
        now += wait;
        ASSERT_EQ(bucket.Take(amount, rate, now), nanoseconds(0));
        given += amount;
      }
      const double seconds_passed = std::chrono::duration<double>(now - kStart).count();
      ASSERT_LE(given, rate.burst + rate.per_second * seconds_passed + 1e-3);
      now += nanoseconds(random() % 10'000'000);
    }
  }
}

TEST(TokenBucketTest, ThreadsTakeNoMoreThanTheBucketHas) {
  TokenBucket bucket;
  const BucketRate rate{.per_second = 1000, .burst = 400'000};
  std::atomic<int> given = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200'000; ++i) {
        if (bucket.Take(1, rate, kStart) == nanoseconds(0)) ++given;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(given, 400'000);
}

}  // namespace
}  // namespace sluice
