#include "server/net/grpc_1_51/live_calls.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace sluice {
namespace {

using Verdict = LiveCalls::Verdict;

// Returns the number of calls of `address` that are served before one is refused.
int Fill(LiveCalls* calls, const std::string& address) {
  int served = 0;
  while (calls->Enter(address) == Verdict::kServe) ++served;
  return served;
}

TEST(LiveCallsTest, OneAddressLeavesPlacesForOthers) {
  LiveCalls calls(80);
  EXPECT_EQ(Fill(&calls, "a"), 30) << "half of 60";
  EXPECT_EQ(Fill(&calls, "b"), 15) << "half of the rest";
  EXPECT_EQ(calls.Enter("c"), Verdict::kServe);
  EXPECT_EQ(calls.refused(), 2);
}

TEST(LiveCallsTest, RefusedCallsCountAndTheLastPlaceClosesConnections) {
  LiveCalls calls(80);
  ASSERT_EQ(Fill(&calls, "a"), 30);
  for (int live = 31; live < 80; ++live) ASSERT_EQ(calls.Enter("a"), Verdict::kRefuse) << live;
  EXPECT_EQ(calls.Enter("a"), Verdict::kClose);
  EXPECT_EQ(calls.Enter("b"), Verdict::kServe) << "refused calls take no place of another address";
}

TEST(LiveCallsTest, CreatedCallsTakePlacesBeforeTheyAreReported) {
  LiveCalls calls(80);
  ASSERT_EQ(Fill(&calls, "a"), 30);
  for (int created = 0; created < 80; ++created) calls.OnCreated();
  EXPECT_EQ(calls.Enter("a"), Verdict::kRefuse);
  calls.OnCreated();
  EXPECT_EQ(calls.Enter("a"), Verdict::kClose);
  EXPECT_EQ(calls.Enter("b"), Verdict::kServe);
  calls.OnReleased();
  EXPECT_EQ(calls.Enter("a"), Verdict::kRefuse);
}

TEST(LiveCallsTest, InAFloodTheAddressWithMostOfTheReportedCallsIsClosed) {
  LiveCalls calls(80);
  for (int created = 0; created < 81; ++created) calls.OnCreated();
  EXPECT_EQ(calls.Enter("a"), Verdict::kServe);
  EXPECT_EQ(calls.Enter("a"), Verdict::kServe) << "a few calls are no flood";
  EXPECT_EQ(calls.Enter("a"), Verdict::kClose);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(calls.Enter("b"), Verdict::kServe) << "half are no flood";
  EXPECT_EQ(calls.Enter("b"), Verdict::kClose);
}

TEST(LiveCallsTest, PlacesReturnWithTheVerdictOfTheCall) {
  LiveCalls calls(8);
  std::vector<Verdict> verdicts;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 20; ++i) verdicts.push_back(calls.Enter("a"));
    EXPECT_EQ(verdicts[0], Verdict::kServe) << round;
    EXPECT_EQ(verdicts[3], Verdict::kRefuse) << round;
    EXPECT_EQ(verdicts[19], Verdict::kClose) << round;
    for (const Verdict verdict : std::exchange(verdicts, {})) calls.Leave("a", verdict);
  }
}

}  // namespace
}  // namespace sluice
