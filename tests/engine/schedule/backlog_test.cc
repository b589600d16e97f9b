#include "engine/schedule/backlog.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

constexpr MonoTime kNow{std::chrono::hours(1)};

Backlog::Entry EntryOf(uint64_t id, seconds deadline, uint32_t caller = 0, int priority = 2,
                       milliseconds service = milliseconds(10)) {
  return {.id = id,
          .load = {.tokens = 1, .priority = priority},
          .deadline = kNow + deadline,
          .caller = caller,
          .service = service};
}

std::vector<uint64_t> TakeAll(Backlog* backlog) {
  std::vector<uint64_t> ids;
  while (!backlog->empty()) {
    const uint64_t next = backlog->Next().id;
    ids.push_back(backlog->TakeNext(kNow).id);
    EXPECT_EQ(ids.back(), next);
  }
  return ids;
}

TEST(Backlog, TakesTheEarliestDeadlineOfACallerFirst) {
  Backlog backlog(seconds(1));
  backlog.Add(EntryOf(1, seconds(30)), kNow);
  backlog.Add(EntryOf(2, seconds(10)), kNow);
  backlog.Add(EntryOf(3, seconds(20)), kNow);
  EXPECT_EQ(backlog.EarliestDeadline(), kNow + seconds(10));
  EXPECT_EQ(backlog.Earliest().id, 2u);
  EXPECT_THAT(TakeAll(&backlog), ElementsAre(2, 3, 1));
  EXPECT_EQ(backlog.EarliestDeadline(), MonoTime::max());
}

TEST(Backlog, CallersTakeTurnsByDeviceTime) {
  Backlog backlog(seconds(1));
  for (uint64_t id = 10; id < 14; ++id) backlog.Add(EntryOf(id, seconds(5), 1), kNow);
  backlog.Add(EntryOf(20, seconds(60), 2, 2, milliseconds(30)), kNow);
  backlog.Add(EntryOf(21, seconds(60), 2), kNow);
  EXPECT_EQ(backlog.rows(), 6);
  // Caller 2 has used 30 ms after its first turn, so caller 1 has three turns.
  EXPECT_THAT(TakeAll(&backlog), ElementsAre(10, 20, 11, 12, 13, 21));
}

// A caller sends each request after its last one was taken. Another caller has many entries.
TEST(Backlog, ACallerWithoutEntriesKeepsItsPlaceInTheTurns) {
  Backlog backlog(seconds(1));
  for (uint64_t id = 10; id < 30; ++id) backlog.Add(EntryOf(id, seconds(60), 1), kNow);
  int taken = 0;
  bool waits = false;
  for (uint64_t turn = 0; turn < 20; ++turn) {
    if (!waits) backlog.Add(EntryOf(100 + turn, seconds(60), 2, 2, milliseconds(30)), kNow);
    waits = backlog.TakeNext(kNow).caller != 2;
    if (!waits) ++taken;
  }
  EXPECT_EQ(taken, 5) << "each takes as long as three of the others";
}

TEST(Backlog, AnEmptyBacklogForgetsTheTurns) {
  Backlog backlog(seconds(1));
  backlog.Add(EntryOf(1, seconds(60), 1, 2, seconds(30)), kNow);
  EXPECT_EQ(backlog.TakeNext(kNow).id, 1u);
  backlog.Add(EntryOf(2, seconds(60), 1), kNow);
  backlog.Add(EntryOf(3, seconds(60), 2), kNow);
  EXPECT_THAT(TakeAll(&backlog), ElementsAre(2, 3));
}

TEST(Backlog, AnUrgentLevelIsAheadByThePriorityStep) {
  Backlog backlog(milliseconds(25));
  for (uint64_t id = 10; id < 14; ++id) backlog.Add(EntryOf(id, seconds(5), 0, 1), kNow);
  backlog.Add(EntryOf(20, seconds(1), 0, 2), kNow);
  EXPECT_THAT(TakeAll(&backlog), ElementsAre(10, 11, 12, 20, 13));
}

TEST(Backlog, TimeUntilFollowsTheShareOfTheDevice) {
  Backlog backlog(seconds(1));
  const auto wait_ms = [&](const Backlog::Entry& entry, MonoTime now) {
    return std::chrono::duration<double, std::milli>(backlog.TimeUntil(entry, now)).count();
  };
  const Backlog::Entry late = EntryOf(1000, seconds(90));
  EXPECT_EQ(wait_ms(late, kNow), 0);
  for (uint64_t id = 0; id < 100; ++id) backlog.Add(EntryOf(id, seconds(60)), kNow);
  EXPECT_NEAR(wait_ms(late, kNow), 1000, 1e-6) << "the whole device";
  EXPECT_NEAR(wait_ms(EntryOf(1000, seconds(50)), kNow), 0, 1e-6) << "it would be first";
  EXPECT_NEAR(wait_ms(EntryOf(1000, seconds(90), 7), kNow), 0, 1e-6) << "a caller of its own";
  // A quarter of the device for a minute.
  MonoTime now = kNow;
  for (uint64_t id = 100; now < kNow + seconds(60); ++id) {
    now += milliseconds(40);
    backlog.TakeNext(now);
    backlog.Add(EntryOf(id, seconds(60)), now);
  }
  EXPECT_NEAR(wait_ms(late, now), 4000, 200);
  EXPECT_GT(wait_ms(late, now + seconds(60)), 100'000) << "nothing was taken for a minute";
}

// Random operations on the backlog and on a list give the same results.
TEST(Backlog, BehavesLikeAList) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Backlog backlog(milliseconds(15));
    std::map<uint64_t, Backlog::Entry> entries;
    uint64_t next_id = 0;
    for (int i = 0; i < 300; ++i) {
      switch (random() % 3) {
        case 0: {
          const Backlog::Entry entry = EntryOf(next_id++, seconds(random() % 50), random() % 4,
                                               1 + random() % 3, milliseconds(1 + random() % 30));
          backlog.Add(entry, kNow);
          entries.emplace(entry.id, entry);
          break;
        }
        case 1: {
          const uint64_t id = random() % (next_id + 1);
          EXPECT_EQ(backlog.Remove(id).has_value(), entries.erase(id) == 1);
          break;
        }
        default: {
          if (entries.empty()) break;
          const Backlog::Entry taken = backlog.TakeNext(kNow);
          ASSERT_EQ(entries.erase(taken.id), 1u);
          for (const auto& [id, entry] : entries) {
            if (entry.caller != taken.caller || entry.load.priority != taken.load.priority)
              continue;
            EXPECT_LE(taken.deadline, entry.deadline);
          }
        }
      }
      int64_t rows = 0;
      MonoTime earliest = MonoTime::max();
      for (const auto& [id, entry] : entries) {
        rows += entry.rows;
        earliest = std::min(earliest, entry.deadline);
      }
      EXPECT_EQ(backlog.rows(), rows);
      EXPECT_EQ(backlog.empty(), entries.empty());
      EXPECT_EQ(backlog.EarliestDeadline(), earliest);
    }
  }
}

}  // namespace
}  // namespace sluice
