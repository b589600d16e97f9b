#include "engine/cuda/pinned_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace sluice::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A source with room for `left` bytes, which records the requested sizes.
class PinnedPoolTest : public ::testing::Test {
 protected:
  PinnedPool MakePool(size_t most_kept_bytes) {
    return PinnedPool({.pin = [this](size_t bytes) { return Pin(bytes); },
                       .unpin = [this](void* memory) { Unpin(memory); }},
                      most_kept_bytes);
  }
  absl::StatusOr<void*> Pin(size_t bytes) {
    asked_.push_back(bytes);
    if (lost_) return absl::UnavailableError("lost");
    if (bytes > left_) return absl::ResourceExhaustedError("no memory");
    left_ -= bytes;
    auto memory = std::make_unique<char[]>(bytes);
    void* const address = memory.get();
    live_[address] = {std::move(memory), bytes};
    return address;
  }
  void Unpin(void* memory) {
    ASSERT_TRUE(live_.contains(memory));
    left_ += live_[memory].second;
    unpinned_.push_back(live_[memory].second);
    live_.erase(memory);
  }

  size_t left_ = size_t{1} << 30;
  bool lost_ = false;
  std::vector<size_t> asked_, unpinned_;
  std::map<void*, std::pair<std::unique_ptr<char[]>, size_t>> live_;
};

TEST_F(PinnedPoolTest, ReusesReleasedBlocks) {
  PinnedPool pool = MakePool(1 << 20);
  void* const first = pool.Take(5000).value();
  void* const second = pool.Take(5000).value();
  EXPECT_NE(first, second);
  pool.Release(first);
  EXPECT_EQ(pool.Take(8000).value(), first) << "of the same class";
  pool.Release(second);
  EXPECT_NE(pool.Take(9000).value(), second) << "of another class";
  EXPECT_THAT(asked_, ElementsAre(8192, 8192, 12288));
  EXPECT_THAT(unpinned_, IsEmpty());
}

TEST_F(PinnedPoolTest, KeepsTheBlocksThatWereReleasedLast) {
  PinnedPool pool = MakePool(20 << 10);
  void* const a = pool.Take(4 << 10).value();
  void* const b = pool.Take(8 << 10).value();
  void* const c = pool.Take(12 << 10).value();
  void* const large = pool.Take(24 << 10).value();
  for (void* block : {a, b}) pool.Release(block);
  EXPECT_THAT(unpinned_, IsEmpty());
  pool.Release(c);
  EXPECT_THAT(unpinned_, ElementsAre(4 << 10));
  pool.Release(large);
  EXPECT_THAT(unpinned_, ElementsAre(4 << 10, 8 << 10, 12 << 10, 24 << 10)) << "nothing is left";
}

TEST_F(PinnedPoolTest, UnpinsKeptBlocksBeforeItFails) {
  PinnedPool pool = MakePool(1 << 20);
  left_ = 20 << 10;
  pool.Release(pool.Take(12 << 10).value());
  EXPECT_TRUE(pool.Take(16 << 10).ok());
  EXPECT_THAT(unpinned_, ElementsAre(12 << 10));
  EXPECT_EQ(pool.Take(16 << 10).status(), absl::ResourceExhaustedError("no memory"));
  lost_ = true;
  asked_.clear();
  EXPECT_EQ(pool.Take(4 << 10).status(), absl::UnavailableError("lost"));
  EXPECT_THAT(asked_, ElementsAre(4 << 10)) << "other errors are not tried twice";
}

TEST_F(PinnedPoolTest, DestructorUnpinsKeptBlocks) {
  {
    PinnedPool pool = MakePool(1 << 20);
    pool.Release(pool.Take(100).value());
    EXPECT_THAT(unpinned_, IsEmpty());
  }
  EXPECT_THAT(unpinned_, ElementsAre(4096));
}

TEST_F(PinnedPoolTest, ClassesWasteAtMostAnEighthAndRepeatThemselves) {
  for (size_t bytes = 1; bytes < size_t{1} << 33; bytes += bytes / 7 + 1) {
    const size_t rounded = PinnedPool::SizeClass(bytes);
    EXPECT_GE(rounded, bytes);
    EXPECT_LE(rounded, bytes + std::max<size_t>(4096, bytes / 8));
    EXPECT_EQ(PinnedPool::SizeClass(rounded), rounded);
  }
}

}  // namespace
}  // namespace sluice::testing
