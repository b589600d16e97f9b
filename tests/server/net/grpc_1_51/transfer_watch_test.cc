// Tests the cancellations of the watch, with gRPC calls that wait for a server.
#include "server/net/grpc_1_51/transfer_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/net/grpc_1_51/pending_call.h"
#include "tests/support/fake_clock.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::PendingCall;
using ::testing::SizeIs;

class TransferWatchTest : public ::testing::Test {
 protected:
  static constexpr char kEndedByTest[] = "10 by the test";
  static constexpr char kFull[] = "8 too many wait";

  void Begin(int i, const TransferWatch::Peer& peer = {.address = "a", .caller = ""}) {
    watch_.BeginIncoming(calls_[i].get(), "nothing came", peer, &waits_[i]);
  }
  void BeginAnswer(int i, int64_t bytes) {
    watch_.BeginOutgoing(calls_[i].get(), "nothing came", bytes, &waits_[i]);
  }
  // Waits for the thread of the watch to sleep until `end`, and advances the time to it.
  void AdvanceTo(nanoseconds end) {
    clock_.AwaitWaiter(start_ + end);
    clock_.Advance(start_ + end - clock_.Now());
  }
  void EndAll() {
    for (TransferWatch::Wait& wait : waits_) watch_.End(&wait);
  }

  FakeClock clock_;
  const MonoTime start_ = clock_.Now();
  std::vector<std::string> full_;  // "address caller" of each call that was ended
  std::array<PendingCall, 8> calls_;
  std::array<TransferWatch::Wait, 8> waits_;
  TransferWatch watch_{seconds(1), "an.option", &clock_,
                       TransferWatch::Limit{.max_incoming = 5,
                                            .full = "too many wait",
                                            .on_full = [this](const std::string& address,
                                                              const std::string& caller) {
                                              full_.push_back(absl::StrCat(address, " ", caller));
                                            }}};
};

TEST_F(TransferWatchTest, EveryWaitEndsAfterItsOwnPatience) {
  Begin(0);
  Begin(1);
  clock_.Advance(milliseconds(400));
  Begin(2);
  watch_.End(&waits_[1]);
  AdvanceTo(seconds(1));
  EXPECT_EQ(calls_[0].AwaitEnd(), "8 nothing came within 1s (an.option)");
  AdvanceTo(milliseconds(1400));
  EXPECT_EQ(calls_[2].AwaitEnd(), "8 nothing came within 1s (an.option)");
  EXPECT_EQ(watch_.cancelled(), 2);
  EXPECT_EQ(calls_[1].End(), kEndedByTest);
}

TEST_F(TransferWatchTest, AtTheLimitEveryCallIsKept) {
  for (int i = 0; i < 5; ++i) Begin(i);
  EXPECT_EQ(watch_.displaced(), 0);
  EndAll();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(calls_[i].End(), kEndedByTest);
}

// Address b is the peer that came last. It keeps its only call, and so does address c.
TEST_F(TransferWatchTest, AFullWatchEndsTheOldestCallOfTheAddressWithTheMost) {
  Begin(0, {.address = "c", .caller = ""});
  for (int i = 1; i < 5; ++i) Begin(i, {.address = "a", .caller = ""});
  Begin(5, {.address = "b", .caller = ""});
  EXPECT_EQ(calls_[1].AwaitEnd(), kFull);
  Begin(6, {.address = "a", .caller = ""});
  EXPECT_EQ(calls_[2].AwaitEnd(), kFull);
  EXPECT_EQ(watch_.displaced(), 2);
  EXPECT_THAT(full_, ::testing::ElementsAre("a ", "a "));
  EndAll();
  for (const int i : {0, 3, 4, 5, 6}) EXPECT_EQ(calls_[i].End(), kEndedByTest) << i;
}

// Behind a proxy all calls have one address.
TEST_F(TransferWatchTest, OfOneAddressTheCallerWithTheMostLosesACall) {
  Begin(0, {.address = "a", .caller = "alice"});
  Begin(1, {.address = "b", .caller = "bob"});
  Begin(2, {.address = "b", .caller = "bob"});
  Begin(3, {.address = "a", .caller = "bob"});
  Begin(4, {.address = "a", .caller = "bob"});
  Begin(5, {.address = "b", .caller = "carol"});
  EXPECT_THAT(full_, SizeIs(1)) << "both addresses had three";
  EXPECT_THAT(full_[0], ::testing::EndsWith("bob"));
  EndAll();
}

// Of two answers of the same size, the older one is cut first.
TEST_F(TransferWatchTest, TheLargestAnswersAreCutUntilEnoughIsFree) {
  BeginAnswer(0, 5);
  BeginAnswer(1, 9);
  BeginAnswer(2, 9);
  BeginAnswer(3, 7);
  EXPECT_EQ(watch_.CutLargest(0), 0);
  EXPECT_EQ(watch_.cut(), 0);
  EXPECT_EQ(watch_.CutLargest(9), 9);
  EXPECT_EQ(watch_.cut(), 1);
  EXPECT_THAT(calls_[1].AwaitEnd(), HasSubstr("server.memory.limit_bytes"));
  EXPECT_EQ(watch_.CutLargest(10), 16);
  EXPECT_EQ(watch_.cut(), 3);
  EXPECT_THAT(calls_[2].AwaitEnd(), HasSubstr("server.memory.limit_bytes"));
  EXPECT_THAT(calls_[3].AwaitEnd(), HasSubstr("server.memory.limit_bytes"));
  EndAll();
  EXPECT_EQ(calls_[0].End(), kEndedByTest);
}

TEST_F(TransferWatchTest, AnswersAreStillReadAfterIncomingMessagesEnd) {
  Begin(0);
  BeginAnswer(1, 1);
  Begin(2);
  watch_.EndIncoming();
  Begin(3);
  for (const int i : {0, 2, 3}) {
    EXPECT_EQ(calls_[i].AwaitEnd(), "14 the server is shutting down") << i;
  }
  EndAll();
  EXPECT_EQ(calls_[1].End(), kEndedByTest);
}

// Compares the watch with a list of waits, over random starts and ends of waits of more addresses
// than the watch keeps without waits.
TEST(TransferWatchModelTest, ChoosesThePeerWithTheMostAfterAnyHistory) {
  constexpr int kMax = 12;
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  FakeClock clock;
  std::string ended;
  const PendingCall call;  // cancelled by the first end; later cancellations do nothing
  TransferWatch watch(
      seconds(1), "an.option", &clock,
      TransferWatch::Limit{.max_incoming = kMax,
                           .full = "too many wait",
                           .on_full = [&](const std::string& address, const std::string& caller) {
                             ended = absl::StrCat(address, "/", caller);
                           }});
  struct Entry {
    std::string address, caller;
    TransferWatch::Wait wait;
  };
  std::list<Entry> waiting;  // the oldest first
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 4 == 0 && !waiting.empty()) {
      const auto any = std::next(waiting.begin(), random() % waiting.size());
      watch.End(&any->wait);
      waiting.erase(any);
      continue;
    }
    Entry& entry = waiting.emplace_back();
    entry.address = absl::StrCat(random() % 2 == 0 ? random() % 3 : random() % 1000);
    entry.caller = absl::StrCat(random() % 2);
    ended.clear();
    watch.BeginIncoming(call.get(), "nothing came",
                        {.address = entry.address, .caller = entry.caller}, &entry.wait);
    if (std::ssize(waiting) <= kMax) {
      ASSERT_EQ(ended, "");
      continue;
    }
    std::map<std::string, int64_t> addresses, callers;
    for (const Entry& each : waiting) {
      ++addresses[each.address];
      ++callers[each.address + "/" + each.caller];
    }
    const std::string address = ended.substr(0, ended.find('/'));
    for (const auto& [name, count] : addresses) ASSERT_LE(count, addresses[address]);
    for (const auto& [name, count] : callers) {
      if (name.starts_with(address + "/")) {
        ASSERT_LE(count, callers[ended]);
      }
    }
    const auto oldest = std::ranges::find_if(
        waiting, [&](const Entry& each) { return each.address + "/" + each.caller == ended; });
    ASSERT_NE(oldest, waiting.end());
    watch.End(&oldest->wait);  // has ended already
    waiting.erase(oldest);
  }
  for (Entry& entry : waiting) watch.End(&entry.wait);
}

}  // namespace
}  // namespace sluice
