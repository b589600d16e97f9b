#include "kernels/cpu/logit_edits.h"

#include <bit>

#include "tests/kernels/cpu/draw_fixture.h"
#include "tests/support/random_edits.h"
#include "tests/support/table.h"

namespace sluice::kernels {
namespace {

std::vector<uint32_t> Bits(std::span<const float> x) {
  std::vector<uint32_t> bits;
  for (const float value : x) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

SampleParams RandomParams(std::mt19937_64& random, int64_t n) {
  SampleParams params;
  params.seed = random();
  params.token_index = random();
  if (random() % 3 == 0) return params;  // greedy
  params.temperature = 0.2f * static_cast<float>(RandomInt(random, 1, 10));
  if (random() % 2 == 0) params.top_k = static_cast<int32_t>(RandomInt(random, 1, n + 1));
  if (random() % 2 == 0) params.top_p = 0.1f * static_cast<float>(RandomInt(random, 1, 9));
  if (random() % 2 == 0) params.min_p = 0.04f * static_cast<float>(RandomInt(random, 1, 9));
  return params;
}

class LogitEditsTest : public DrawTest {};

TEST_P(LogitEditsTest, DrawsTheTokensOfTheReferenceAndReportsTheUneditedRow) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    std::mt19937_64 random(seed);
    for (unsigned kinds = 0; kinds < kAllEditKinds; ++kinds) {
      for (const int64_t n : {1, 2, 37, 1500}) {
        SCOPED_TRACE(testing::Message() << "seed " << seed << ", edits " << kinds << ", n " << n);
        const bool exact = random() % 2 == 0;
        std::vector<float> x = RandomFloats(random, n, 5.0f);
        if (exact) {
          for (float& value : x) value = std::round(value);  // many ties
        }
        const auto spared = static_cast<int32_t>(RandomInt(random, 0, n - 1));
        for (int32_t i = 0; i < n; ++i) {
          if (i != spared && random() % 20 == 0) x[i] = -kInfinity;
        }
        const OwnedEdits owned = RandomEdits(random, n, kinds, exact, spared);
        const LogitEdits edits = owned.view();
        const SampleParams params = RandomParams(random, n);
        const auto num_top = static_cast<int32_t>(std::min<int64_t>(n, 3));
        const DrawResult result = DrawRow(x, params, &edits, num_top);
        ASSERT_EQ(result.token, reference::Sample(reference::Edit(ToDouble(x), edits), params));
        const std::vector<double> logprobs = reference::LogSoftmax(ToDouble(x));
        ASSERT_NEAR(result.logprob, logprobs[result.token], 2e-6);
        ASSERT_EQ(result.top_ids, reference::TopK(ToDouble(x), num_top));
        // Both are -inf for a candidate whose logit is -inf.
        ASSERT_TRUE(result.top_logprobs[0] == logprobs[result.top_ids[0]] ||
                    std::abs(result.top_logprobs[0] - logprobs[result.top_ids[0]]) < 2e-6);
      }
    }
  }
}

TEST_P(LogitEditsTest, EditsThatChangeNoLogitChangeNoBit) {
  std::mt19937_64 random(5);
  const int64_t n = 3000;
  std::vector<float> x = RandomFloats(random, n, 4.0f);
  x[7] = -0.0f;
  x[8] = -kInfinity;
  OwnedEdits owned = RandomEdits(random, n, 0, false, 0);
  for (const int32_t token : DistinctTokens(random, n, 50)) owned.bias.push_back({token, 0.0f});
  owned.allowed = DistinctTokens(random, n, n);
  const LogitEdits edits = owned.view(), none;
  for (int i = 0; i < 200; ++i) {
    const SampleParams params = RandomParams(random, n);
    const DrawResult plain = DrawRow(x, params);
    for (const LogitEdits* idle : {&edits, &none}) {
      const DrawResult edited = DrawRow(x, params, idle);
      ASSERT_EQ(edited.token, plain.token) << "draw " << i;
      ASSERT_EQ(Bits({&edited.logprob, 1}), Bits({&plain.logprob, 1})) << "draw " << i;
    }
  }
}

TEST_P(LogitEditsTest, RowsThatAreNotFiniteAfterEditsHaveNoToken) {
  ExpectRowsThatAreNotFiniteAfterEditsHaveNoToken(DrawEach);
}

SLUICE_EVERY_F32_PROFILE(LogitEditsTest);

constexpr TokenBias kUp[] = {{1, 3.0f}};
constexpr TokenBias kBan[] = {{1, -kInfinity}};
constexpr int32_t kBanned[] = {1};

struct ApplyEditsRow {
  const char* name;
  float x;
  LogitEdits edits;
  int32_t generated;  // how often the token was generated
  float expected;
};
class ApplyEditsTable : public TableTest<ApplyEditsRow> {};

TEST_P(ApplyEditsTable, EditsEachLogitByTheFormula) {
  const SeenToken seen[] = {{1, row().generated}};
  LogitEdits edits = row().edits;
  edits.seen = seen;
  std::vector<float> x = {-0.0f, row().x, kPoison}, saved(3, kPoison);
  const std::vector<uint32_t> before = Bits(x);
  EXPECT_TRUE(ApplyEdits(edits, x.data(), saved.data()));
  EXPECT_EQ(x[1], row().expected);
  EXPECT_EQ(reference::Edit(std::vector<double>{0, row().x, 0}, edits)[1], row().expected);
  UndoEdits(edits, saved.data(), x.data());
  EXPECT_EQ(Bits(x), before);
}

const ApplyEditsRow kApplyEditsRows[] = {
    {.name = "RepetitionDividesWhatIsPositive",
     .x = 4,
     .edits = {.repetition = 2},
     .generated = 0,
     .expected = 2},
    {.name = "RepetitionMultipliesWhatIsNegative",
     .x = -4,
     .edits = {.repetition = 2},
     .generated = 0,
     .expected = -8},
    {.name = "RepetitionBelowOneRewardsWhatIsPositive",
     .x = 4,
     .edits = {.repetition = 0.5f},
     .generated = 0,
     .expected = 8},
    {.name = "RepetitionBelowOneRewardsWhatIsNegative",
     .x = -4,
     .edits = {.repetition = 0.5f},
     .generated = 1,
     .expected = -2},
    {.name = "WhatIsBannedStaysBanned",
     .x = -kInfinity,
     .edits = {.repetition = 0.5f},
     .generated = 0,
     .expected = -kInfinity},
    {.name = "ZeroStaysZero", .x = 0, .edits = {.repetition = 2}, .generated = 0, .expected = 0},
    {.name = "PresenceLeavesThePromptAlone",
     .x = 4,
     .edits = {.presence = 1},
     .generated = 0,
     .expected = 4},
    {.name = "PresenceCountsOnce", .x = 4, .edits = {.presence = 1}, .generated = 3, .expected = 3},
    {.name = "FrequencyCountsEachTime",
     .x = 4,
     .edits = {.frequency = 0.5f},
     .generated = 3,
     .expected = 2.5f},
    {.name = "NegativePenaltiesReward",
     .x = 4,
     .edits = {.presence = -1, .frequency = -0.5f},
     .generated = 2,
     .expected = 6},
    {.name = "RepetitionComesBeforePresence",
     .x = 4,
     .edits = {.repetition = 2, .presence = 3},
     .generated = 1,
     .expected = -1},
    {.name = "BiasComesAfterRepetition",
     .x = -1,
     .edits = {.repetition = 2, .bias = kUp},
     .generated = 0,
     .expected = 1},
    {.name = "BiasMayBan", .x = 4, .edits = {.bias = kBan}, .generated = 0, .expected = -kInfinity},
    {.name = "ABanIsFinal",
     .x = 4,
     .edits = {.bias = kUp, .banned = kBanned},
     .generated = 1,
     .expected = -kInfinity},
};
SLUICE_TABLE(ApplyEditsTable, kApplyEditsRows);

}  // namespace
}  // namespace sluice::kernels
