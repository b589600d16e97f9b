#include "kernels/simt/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "tests/support/table.h"

namespace sluice::simt {
namespace {

using testing::HasSubstr;

class MemoryTest : public testing::Test {
 protected:
  MemoryTest() : buffer_(static_cast<float*>(memory_.Allocate(40))) {
    EXPECT_EQ(memory_.HostAccess(buffer_, 40, Access::kWrite), "");
  }

  std::string Note(Access access, const Actor& actor, int element = 0) {
    return NoteAt(buffer_ + element, 4, access, actor);
  }
  // Returns the error of an access, or an empty string.
  std::string NoteAt(const float* from, size_t bytes, Access access, const Actor& actor) {
    const auto address = reinterpret_cast<uintptr_t>(from);
    const uint32_t number = memory_.Enter(actor);
    return memory_.Note(address, bytes, access, number, nullptr)
               ? ""
               : memory_.Explain(address, bytes, access, number);
  }

  Memory memory_;
  float* buffer_;
};

TEST_F(MemoryTest, BuffersAreAlignedPoisonedAndApart) {
  auto* other = static_cast<float*>(memory_.Allocate(4));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(other) % Memory::kAlignment, 0u);
  EXPECT_TRUE(std::isnan(*other));
  EXPECT_THAT(NoteAt(other, 8, Access::kRead, {.launch = 1}),
              HasSubstr("4 bytes past the end of a buffer of 4"));
  memory_.Free(other);
  EXPECT_EQ(memory_.live_bytes(), 40u);
  EXPECT_NE(NoteAt(other, 4, Access::kRead, {.launch = 1}), "");
}

TEST_F(MemoryTest, SharedMemoryIsNotMemoryOfTheDevice) {
  void* shared = memory_.Recycle(nullptr, 100);
  for (const size_t bytes : {50, 1000}) {
    shared = memory_.Recycle(shared, bytes);
    EXPECT_EQ(memory_.live_bytes(), 40u);
  }
  memory_.Free(shared);
  EXPECT_EQ(memory_.live_bytes(), 40u);
}

// The first access is of launch 1, block 0, block epoch 3, warp epoch 2 and thread 7.
struct AccessOrderRow {
  const char* name;
  Actor second;
  bool ordered;
};
class AccessOrderTable : public TableTest<AccessOrderRow, MemoryTest> {};

TEST_P(AccessOrderTable, OnlyBarriersOrderThreads) {
  const Actor first = {.launch = 1, .block = 0, .block_epoch = 3, .warp_epoch = 2, .thread = 7};
  const Actor& second = row().second;
  for (const auto& [one, two] :
       {std::pair(Access::kWrite, Access::kWrite), std::pair(Access::kWrite, Access::kRead),
        std::pair(Access::kRead, Access::kWrite), std::pair(Access::kWrite, Access::kAtomic)}) {
    ASSERT_EQ(memory_.HostAccess(buffer_, 40, Access::kWrite), "");
    EXPECT_EQ(Note(one, first), "");
    EXPECT_EQ(Note(two, second) == "", row().ordered);
  }
  ASSERT_EQ(memory_.HostAccess(buffer_, 40, Access::kWrite), "");
  EXPECT_EQ(Note(Access::kAtomic, first), "");
  EXPECT_EQ(Note(Access::kAtomic, second), "") << "atomics do not race with one another";
  EXPECT_EQ(Note(Access::kRead, first), row().ordered ? "" : Note(Access::kRead, first));
}

const AccessOrderRow kAccessOrderRows[] = {
    {.name = "TheSameThreadIsOrdered",
     .second = {.launch = 1, .block = 0, .block_epoch = 3, .warp_epoch = 2, .thread = 7},
     .ordered = true},
    {.name = "ALaneIsNotOrdered",
     .second = {.launch = 1, .block = 0, .block_epoch = 3, .warp_epoch = 2, .thread = 8},
     .ordered = false},
    {.name = "ALaneAfterTheWarpsBarrierIsOrdered",
     .second = {.launch = 1, .block = 0, .block_epoch = 3, .warp_epoch = 3, .thread = 8},
     .ordered = true},
    {.name = "AnotherWarpIsNotOrdered",
     .second = {.launch = 1, .block = 0, .block_epoch = 3, .warp_epoch = 2, .thread = 40},
     .ordered = false},
    {.name = "AnotherWarpAfterItsOwnBarrierIsNotOrdered",
     .second = {.launch = 1, .block = 0, .block_epoch = 3, .warp_epoch = 3, .thread = 40},
     .ordered = false},
    {.name = "AnotherWarpAfterTheBlocksBarrierIsOrdered",
     .second = {.launch = 1, .block = 0, .block_epoch = 4, .warp_epoch = 2, .thread = 40},
     .ordered = true},
    {.name = "AnotherBlockIsNotOrdered",
     .second = {.launch = 1, .block = 1, .block_epoch = 3, .warp_epoch = 2, .thread = 7},
     .ordered = false},
    {.name = "AnotherBlockAfterItsBarrierIsNotOrdered",
     .second = {.launch = 1, .block = 1, .block_epoch = 4, .warp_epoch = 2, .thread = 7},
     .ordered = false},
    {.name = "TheNextLaunchIsOrdered",
     .second = {.launch = 2, .block = 1, .block_epoch = 3, .warp_epoch = 2, .thread = 7},
     .ordered = true},
};
SLUICE_TABLE(AccessOrderTable, kAccessOrderRows);

// A write must come after every reader, not only after the last.
TEST_F(MemoryTest, AnEarlierReaderIsNotForgotten) {
  const Actor reader = {.launch = 1, .thread = 40}, other = {.launch = 1, .thread = 1};
  EXPECT_EQ(Note(Access::kRead, reader), "");
  EXPECT_EQ(Note(Access::kRead, other), "");
  EXPECT_NE(Note(Access::kWrite, other), "");

  const Actor later = {.launch = 1, .warp_epoch = 1, .thread = 1};
  EXPECT_EQ(Note(Access::kRead, reader, 1), "");
  EXPECT_EQ(Note(Access::kRead, other, 1), "");
  EXPECT_EQ(Note(Access::kRead, later, 1), "");
  EXPECT_NE(Note(Access::kWrite, later, 1), "") << "its warp's barrier does not order thread 40";
  const Actor all = {.launch = 1, .block_epoch = 1, .thread = 1};
  EXPECT_EQ(Note(Access::kWrite, all, 1), "");
}

TEST_F(MemoryTest, PoisonedMemoryMustBeWrittenBeforeItIsRead) {
  memory_.Poison(buffer_ + 2, 4);
  EXPECT_TRUE(std::isnan(buffer_[2]));
  EXPECT_EQ(Note(Access::kRead, {.launch = 1}, 1), "");
  EXPECT_THAT(Note(Access::kRead, {.launch = 1}, 2), HasSubstr("unwritten memory"));
  EXPECT_EQ(Note(Access::kWrite, {.launch = 1}, 2), "");
  EXPECT_EQ(Note(Access::kRead, {.launch = 1}, 2), "");
}

// Numbers of actors begin again after 2^24 warps.
TEST_F(MemoryTest, NothingIsForgottenWhenNumbersOfActorsBeginAgain) {
  void* const shared = memory_.Recycle(nullptr, 40);
  memory_.Poison(buffer_ + 1, 4);
  EXPECT_EQ(Note(Access::kWrite, {.launch = 1, .thread = 3}, 2), "");
  uint32_t launch = 1, last = 0, number = 0;
  do {
    last = std::exchange(number, memory_.Enter({.launch = ++launch}));
  } while (number > last);
  EXPECT_EQ(Note(Access::kRead, {.launch = launch}, 0), "");
  EXPECT_THAT(Note(Access::kRead, {.launch = launch}, 1), HasSubstr("unwritten memory"));
  EXPECT_EQ(Note(Access::kRead, {.launch = launch}, 2), "");
  EXPECT_THAT(NoteAt(static_cast<float*>(shared), 4, Access::kRead, {.launch = launch}),
              HasSubstr("unwritten memory"));
  EXPECT_THAT(Note(Access::kWrite, {.launch = launch, .thread = 40}, 0),
              HasSubstr("no barrier between"));
  memory_.Free(shared);
}

TEST_F(MemoryTest, AccessesToACopyInProgressAreFaults) {
  const Actor copier = {.launch = 1};
  for (Access access : {Access::kRead, Access::kWrite}) {
    EXPECT_EQ(Note(Access::kCopy, copier), "");
    EXPECT_NE(Note(access, copier), "");
    memory_.Arrive(reinterpret_cast<uintptr_t>(buffer_), 4, memory_.Enter(copier));
    EXPECT_EQ(Note(access, copier), "");
  }
}

}  // namespace
}  // namespace sluice::simt
