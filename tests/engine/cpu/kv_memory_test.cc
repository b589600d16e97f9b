#include "engine/cpu/kv_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>

namespace sluice::testing {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kHugePage = 2 * kMiB;

// Returns whether the system has provided the memory at `at`.
bool IsProvided(const std::byte* at) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto* const start = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(at) / page * page);
  unsigned char resident = 0;
  EXPECT_EQ(mincore(start, page, &resident), 0);
  return (resident & 1) != 0;
}

// Returns whether the providing thread provides the memory, even on a slow machine.
bool BecomesProvided(const std::byte* at) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::minutes(3);
  while (!IsProvided(at)) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    std::this_thread::yield();
  }
  return true;
}

class KvMemoryTest : public ::testing::Test {
 protected:
  static constexpr int64_t kArrays = 4;
  static constexpr int32_t kPages = 1024;
  static constexpr int64_t kPageBytes = 16 << 10;  // an array has eight huge pages

  void SetUp() override {
    auto probe = FloatBuffer::Allocate(2 * kHugePage / 4, "probe");
    ASSERT_TRUE(probe.ok());
    constexpr int kProvide = 23;                                   // MADV_POPULATE_WRITE
    if (madvise(probe->data(), kHugePage, kProvide) != 0) return;  // Linux before 5.14
    auto memory = FloatBuffer::Allocate(kArrays * kPages * kPageBytes / 4, "KV pages");
    ASSERT_TRUE(memory.ok());
    // The allocator may have returned memory that earlier tests used.
    memory->ReleaseBehind(0);
    kv_.emplace(*std::move(memory), kArrays, kPages, kPageBytes);
  }

  std::byte* At(int64_t array, int32_t page) const { return kv_->array(array) + page * kPageBytes; }

  std::optional<KvMemory> kv_;  // none if the system provides nothing ahead
};

TEST_F(KvMemoryTest, TheFirstPagesOfEachArrayAreProvidedAtTheStart) {
  if (!kv_.has_value()) return;
  constexpr int32_t kAhead = kHugePage / kPageBytes;
  for (int64_t array = 0; array < kArrays; ++array)
    ASSERT_TRUE(BecomesProvided(At(array, kAhead - 1)));
  for (int64_t array = 0; array < kArrays; ++array) {
    EXPECT_FALSE(IsProvided(At(array, kAhead))) << array;
  }
}

TEST_F(KvMemoryTest, PagesAreProvidedBeforeTheyAreUsedAndKeepTheirContent) {
  if (!kv_.has_value()) return;
  constexpr int32_t kAhead = kHugePage / kPageBytes;
  for (int32_t page = 0; page < kPages; ++page) {
    kv_->Use(page);
    // At any time, half of the memory provided ahead is still unused.
    const int32_t next = std::min(page + kAhead / 2, kPages - 1);
    for (int64_t array = 0; array < kArrays; ++array) {
      ASSERT_TRUE(BecomesProvided(At(array, next)));
      std::fill_n(At(array, page), kPageBytes, std::byte(page + array));
    }
    const int32_t later = page + 2 * kAhead;
    if (later < kPages) {
      EXPECT_FALSE(IsProvided(At(0, later))) << page;
    }
  }
  for (int32_t page = 0; page < kPages; ++page) {
    for (int64_t array = 0; array < kArrays; ++array) {
      const std::byte* const at = At(array, page);
      EXPECT_EQ(std::count(at, at + kPageBytes, std::byte(page + array)), kPageBytes);
    }
  }
}

TEST_F(KvMemoryTest, ProvidesMemoryAfterAStepThatSkipsAhead) {
  if (!kv_.has_value()) return;
  constexpr int32_t kFar = kPages / 2;
  for (int32_t page = 0; page <= kFar; ++page) kv_->Use(page);
  ASSERT_TRUE(BecomesProvided(At(kArrays - 1, kFar + kHugePage / kPageBytes / 2)));
  kv_->Use(kPages - 1);
  kv_->Use(kPages - 1);
}

TEST(KvMemory, MayBeEmpty) {
  auto memory = FloatBuffer::Allocate(0, "KV pages");
  ASSERT_TRUE(memory.ok());
  KvMemory kv(*std::move(memory), 0, 6, 0);
  for (int32_t page = 0; page < 6; ++page) kv.Use(page);
  EXPECT_EQ(kv.bytes(), 0);
}

}  // namespace
}  // namespace sluice::testing
