#include "engine/rows/ngram_drafts.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Tokens = std::vector<int32_t>;

Tokens Propose(DraftSource* source, const Tokens& history, size_t most) {
  Tokens drafts(most, -1);
  drafts.resize(static_cast<size_t>(source->Propose(history, drafts)));
  return drafts;
}

Tokens Propose(const Tokens& history, size_t most) {
  NgramDrafts source(100);
  return Propose(&source, history, most);
}

TEST(NgramDrafts, RepeatsTheTokensAfterTheLatestEarlierPlace) {
  EXPECT_THAT(Propose({1, 2, 3, 4, 1, 2, 5, 6, 9, 1, 2}, 3), ElementsAre(5, 6, 9));
}

TEST(NgramDrafts, PrefersALongerMatch) {
  EXPECT_THAT(Propose({7, 8, 1, 2, 3, 4, 1, 2, 5, 7, 8, 1, 2}, 2), ElementsAre(3, 4));
}

TEST(NgramDrafts, RepeatsALoopThatOverlapsTheEnd) {
  EXPECT_THAT(Propose({9, 1, 2, 3, 1, 2}, 7), ElementsAre(3, 1, 2, 3, 1, 2, 3));
  EXPECT_THAT(Propose({5, 5, 5}, 4), ElementsAre(5, 5, 5, 5));
}

TEST(NgramDrafts, ProposesNothingWithoutAnEarlierPlace) {
  EXPECT_THAT(Propose({}, 4), IsEmpty());
  EXPECT_THAT(Propose({1}, 4), IsEmpty());
  EXPECT_THAT(Propose({1, 2}, 4), IsEmpty());
  EXPECT_THAT(Propose({1, 2, 3, 4, 5}, 4), IsEmpty());
}

// A history that grows by one or more tokens gives the same drafts as a new index, unless a place
// in the table was replaced.
TEST(NgramDrafts, ContinuesItsIndex) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    NgramDrafts growing(1 << 12);
    Tokens history;
    while (history.size() < 300) {
      for (uint64_t count = 1 + random() % 5; count > 0; --count) {
        history.push_back(static_cast<int32_t>(random() % 6));
      }
      NgramDrafts fresh(1 << 12);
      ASSERT_EQ(Propose(&growing, history, 8), Propose(&fresh, history, 8));
    }
  }
}

TEST(PredictedDrafts, FollowsThePredictionFromItsBeginning) {
  const Tokens predicted = {30, 31, 32, 33, 34};
  PredictedDrafts source(predicted, 100);
  EXPECT_THAT(Propose(&source, {1, 2, 30}, 3), ElementsAre(31, 32, 33));
  EXPECT_THAT(Propose(&source, {1, 2, 30, 31, 32}, 3), ElementsAre(33, 34));
  EXPECT_THAT(Propose(&source, {1, 2, 30, 31, 32, 33, 34}, 3), IsEmpty());
}

TEST(PredictedDrafts, FindsThePlaceAfterADifference) {
  const Tokens predicted = {30, 31, 32, 33, 34, 35, 36};
  PredictedDrafts source(predicted, 100);
  EXPECT_THAT(Propose(&source, {1, 2, 99}, 3), IsEmpty());
  EXPECT_THAT(Propose(&source, {1, 2, 99, 32}, 3), IsEmpty());
  EXPECT_THAT(Propose(&source, {1, 2, 99, 32, 33}, 2), ElementsAre(34, 35));
  EXPECT_THAT(Propose(&source, {1, 2, 99, 32, 33, 50}, 2), IsEmpty());
  EXPECT_THAT(Propose(&source, {1, 2, 99, 32, 33, 50, 30, 31}, 2), ElementsAre(32, 33));
}

TEST(PredictedDrafts, DraftsNgramsWhereThePredictionHasNoPlace) {
  const Tokens predicted = {30};
  PredictedDrafts source(predicted, 100);
  EXPECT_THAT(Propose(&source, {1, 2, 3, 4, 1, 2}, 2), ElementsAre(3, 4));
}

// Every proposal continues an earlier place of the last two tokens.
TEST(NgramDrafts, ProposesOnlyContinuationsOfEqualTokens) {
  std::mt19937_64 random(3);
  NgramDrafts source(1 << 15);
  Tokens history;
  int64_t proposals = 0;
  for (int32_t i = 0; i < 5000; ++i) {
    history.push_back(static_cast<int32_t>(random() % 60));
    const Tokens drafts = Propose(&source, history, 1);
    if (drafts.empty()) continue;
    ++proposals;
    const Tokens wanted = {history[history.size() - 2], history.back(), drafts[0]};
    ASSERT_NE(std::search(history.begin(), history.end(), wanted.begin(), wanted.end()),
              history.end());
  }
  EXPECT_GT(proposals, 500);
}

TEST(NgramDrafts, KeepsItsMemoryForLongHistories) {
  EXPECT_EQ(NgramDrafts::Bytes(1 << 14), NgramDrafts::Bytes(int64_t{1} << 40));
  EXPECT_LT(NgramDrafts::Bytes(16), 1024);
  EXPECT_EQ(PredictedDrafts::Bytes(1 << 14, 1 << 14),
            PredictedDrafts::Bytes(int64_t{1} << 40, int64_t{1} << 40));
}

}  // namespace
}  // namespace sluice
