#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <numeric>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/support/thread_limit.h"

namespace sluice::kernels {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, VisitsEveryIndexOnceInRangesOfAtMostGrain) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.threads(), GetParam());
  for (int64_t n : {1, 2, 3, 7, 64, 1000}) {
    for (int64_t grain : {1, 2, 3, 10, 5000}) {
      std::vector<int> visits(n, 0);
      std::atomic<bool> fits{true};
      pool.ParallelFor(n, grain, [&](int64_t begin, int64_t end, int worker) {
        if (begin >= end || end - begin > grain || worker < 0 || worker >= GetParam()) fits = false;
        for (int64_t i = begin; i < end; ++i) ++visits[i];
      });
      EXPECT_TRUE(fits);
      EXPECT_EQ(visits, std::vector<int>(n, 1)) << n << " by " << grain;
    }
  }
}

TEST_P(ThreadPoolTest, DoesNothingForNoIndices) {
  ThreadPool pool(GetParam());
  bool called = false;
  pool.ParallelFor(0, 1, [&](int64_t, int64_t, int) { called = true; });
  pool.ParallelFor(-5, 1, [&](int64_t, int64_t, int) { called = true; });
  EXPECT_FALSE(called);
}

TEST_P(ThreadPoolTest, ConcurrentCallsHaveDistinctWorkerNumbers) {
  ThreadPool pool(GetParam());
  std::vector<std::atomic<int>> inside(GetParam());
  std::atomic<bool> unique{true};
  for (int job = 0; job < 200; ++job) {
    pool.ParallelFor(64, 1, [&](int64_t, int64_t, int worker) {
      if (inside[worker].fetch_add(1) != 0) unique = false;
      inside[worker].fetch_sub(1);
    });
  }
  EXPECT_TRUE(unique);
}

TEST_P(ThreadPoolTest, CallersAtTheSameTimeGetTheirOwnResults) {
  ThreadPool pool(GetParam());
  const auto caller = [&](std::vector<int64_t>* sums) {
    for (int job = 0; job < 2000; ++job) {
      std::vector<int64_t> partial(pool.threads(), 0);  // written without atomics, by worker
      pool.ParallelFor(100, 3, [&](int64_t begin, int64_t end, int worker) {
        for (int64_t i = begin; i < end; ++i) partial[worker] += i;
      });
      sums->push_back(std::accumulate(partial.begin(), partial.end(), int64_t{0}));
    }
  };
  std::vector<int64_t> first, second;
  std::thread other(caller, &second);
  caller(&first);
  other.join();
  EXPECT_EQ(first, std::vector<int64_t>(2000, 4950));
  EXPECT_EQ(second, first);
}

TEST_P(ThreadPoolTest, ACallerDoesNotWaitForAnotherOne) {
  ThreadPool pool(GetParam());
  for (const int64_t grain : {1, 64}) {
    std::promise<void> other_ended;
    std::atomic<bool> entered{false};
    bool waited = true;
    std::thread other;
    pool.ParallelFor(GetParam(), 1, [&](int64_t, int64_t, int) {
      if (entered.exchange(true)) return;
      other = std::thread([&] {
        int64_t sum = 0;
        pool.ParallelFor(64, grain, [&](int64_t begin, int64_t end, int worker) {
          EXPECT_EQ(worker, 0);
          for (int64_t i = begin; i < end; ++i) sum += i;
        });
        EXPECT_EQ(sum, 2016);
        other_ended.set_value();
      });
      waited =
          other_ended.get_future().wait_for(std::chrono::minutes(3)) != std::future_status::ready;
    });
    other.join();
    ASSERT_FALSE(waited) << "by " << grain;
  }
}

TEST_P(ThreadPoolTest, ACallerSharesItsRemainingWorkOnceTheOthersAreFree) {
  if (GetParam() == 1) return;  // one thread shares nothing
  constexpr int kMany = 10'000'000;
  ThreadPool pool(GetParam());
  // The second call starts while the first call has the threads. In its first part, the second call
  // waits for the end of the first call.
  std::promise<void> begun, first_ended;
  std::atomic<int> others{0};
  std::thread second([&] {
    begun.get_future().wait();
    pool.ParallelFor(1000, 1, [&](int64_t begin, int64_t, int worker) {
      if (begin == 0) first_ended.get_future().wait();
      if (worker != 0) ++others;
      // One part continues until another thread has a part, too.
      for (int i = 0; begin == 1 && i < kMany && others == 0; ++i) std::this_thread::yield();
    });
  });
  std::atomic<bool> entered{false};
  pool.ParallelFor(GetParam(), 1, [&](int64_t, int64_t, int) {
    if (!entered.exchange(true)) begun.set_value();
  });
  first_ended.set_value();
  second.join();
  EXPECT_GT(others, 0);
}

TEST_P(ThreadPoolTest, WritesOfWorkersAreVisibleAfterwards) {
  ThreadPool pool(GetParam());
  int64_t expected = 0, total = 0;
  for (int64_t job = 0; job < 5000; ++job) {
    std::vector<int64_t> out(8);
    pool.ParallelFor(8, 1, [&](int64_t begin, int64_t, int) { out[begin] = job + begin; });
    total += std::accumulate(out.begin(), out.end(), int64_t{0});
    expected += 8 * job + 28;
  }
  EXPECT_EQ(total, expected);
}

TEST_P(ThreadPoolTest, TheCallerDoesSmallCallsByItself) {
  constexpr int64_t kLeast = 1000;
  ThreadPool pool(GetParam(), kLeast);
  for (const int64_t multiply_adds : {kLeast - 1, kLeast}) {
    const std::thread::id caller = std::this_thread::get_id();
    std::vector<int> visits(64, 0);
    std::atomic<int> ranges{0};
    std::atomic<bool> alone{true};
    pool.ParallelFor(64, 2, multiply_adds, [&](int64_t begin, int64_t end, int worker) {
      ++ranges;
      if (worker != 0 || std::this_thread::get_id() != caller) alone = false;
      for (int64_t i = begin; i < end; ++i) ++visits[i];
    });
    EXPECT_EQ(visits, std::vector<int>(64, 1));
    EXPECT_EQ(ranges, multiply_adds < kLeast ? 1 : 32);
    EXPECT_TRUE(alone || multiply_adds >= kLeast);
  }
}

TEST_P(ThreadPoolTest, OnlyTheRunningThreadsTakePart) {
  constexpr int kMany = 10'000'000;
  ThreadPool pool(GetParam());
  for (const int running : {GetParam(), 1, 2, 0, GetParam() + 1, 1}) {
    pool.SetRunning(running);
    EXPECT_EQ(pool.running(), std::clamp(running, 1, GetParam()));
    for (int job = 0; job < 20; ++job) {
      std::vector<int> visits(64, 0);
      std::atomic<int> largest{0};
      pool.ParallelFor(64, 1, [&](int64_t begin, int64_t, int worker) {
        ++visits[begin];
        for (int seen = largest; seen < worker && !largest.compare_exchange_weak(seen, worker);) {
        }
        // One part continues until another thread than the caller has a part, too.
        for (int i = 0; begin == 0 && pool.running() > 1 && i < kMany && largest == 0; ++i) {
          std::this_thread::yield();
        }
      });
      ASSERT_EQ(visits, std::vector<int>(64, 1));
      ASSERT_LT(largest, pool.running());
    }
  }
}

TEST_P(ThreadPoolTest, AThreadThatRunsAgainTakesPart) {
  if (GetParam() == 1) return;
  constexpr int kMany = 10'000'000;
  ThreadPool pool(GetParam());
  pool.SetRunning(1);
  pool.SetRunning(GetParam());
  std::atomic<int> others{0};
  // The caller continues until another thread has a part, too.
  for (int job = 0; job < kMany && others == 0; ++job) {
    pool.ParallelFor(1000, 1, [&](int64_t, int64_t, int worker) {
      if (worker != 0) ++others;
    });
  }
  EXPECT_GT(others, 0);
}

TEST_P(ThreadPoolTest, TheNumberMayChangeDuringCalls) {
  ThreadPool pool(GetParam());
  std::atomic<bool> stop{false};
  std::thread resizes([&] {
    for (int i = 0; !stop; ++i) pool.SetRunning(1 + i % GetParam());
  });
  for (int job = 0; job < 3000; ++job) {
    std::vector<int> visits(64, 0);
    pool.ParallelFor(64, 1, [&](int64_t begin, int64_t, int) { ++visits[begin]; });
    ASSERT_EQ(visits, std::vector<int>(64, 1));
  }
  stop = true;
  resizes.join();
}

// The exception comes from the caller, from a worker, or from several threads.
TEST_P(ThreadPoolTest, AnExceptionReachesTheCallerOnceNoThreadIsInside) {
  constexpr int kMany = 10'000'000;
  ThreadPool pool(GetParam());
  for (int job = 0; job < 300; ++job) {
    const int thrower = job % (GetParam() + 1);  // the number after the last thread: all threads
    std::atomic<int> inside{0}, begun{0};
    std::atomic<bool> threw{false};
    try {
      pool.ParallelFor(1000, 1, [&](int64_t, int64_t, int worker) {
        ++inside;
        if (++begun == 1) {
          // The first part continues until another thread has a part, too.
          for (int i = 0; GetParam() > 1 && i < kMany && begun == 1; ++i) {
            std::this_thread::yield();
          }
        }
        --inside;
        if (worker != thrower && thrower != GetParam()) return;
        threw = true;
        throw std::runtime_error("job");
      });
      EXPECT_FALSE(threw);
    } catch (const std::runtime_error& thrown) {
      EXPECT_TRUE(threw);
      EXPECT_STREQ(thrown.what(), "job");
    }
    EXPECT_EQ(inside, 0);
    std::vector<int> visits(64, 0);
    pool.ParallelFor(64, 1, [&](int64_t begin, int64_t, int) { ++visits[begin]; });
    ASSERT_EQ(visits, std::vector<int>(64, 1));
  }
}

TEST_P(ThreadPoolTest, APoolWithoutAllOfItsThreadsEndsThoseItHas) {
  for (int threads = 0; threads + 1 < GetParam() && threads < 3; ++threads) {
    const ThreadLimit limit(threads);
    EXPECT_THROW(ThreadPool{GetParam()}, std::system_error);
  }
  EXPECT_EQ(ThreadPool(GetParam()).threads(), GetParam());
}

TEST_P(ThreadPoolTest, CanBeDestroyedWhetherOrNotItEverRan) {
  for (int i = 0; i < 20; ++i) {
    ThreadPool idle(GetParam());
    ThreadPool used(GetParam());
    used.ParallelFor(4, 1, [](int64_t, int64_t, int) {});
    ThreadPool shrunk(GetParam());
    shrunk.SetRunning(1);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8));

TEST(AvailableCpusTest, IsAtLeastOne) { EXPECT_GE(AvailableCpus(), 1); }

}  // namespace
}  // namespace sluice::kernels
