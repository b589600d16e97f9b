#include "engine/schedule/draft_gain.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

TEST(DraftGain, ExpectsTheSumOfTheProbabilitiesThatAllBeforeAreAccepted) {
  EXPECT_EQ(ExpectedTokens(0.5, 0), 1);
  EXPECT_EQ(ExpectedTokens(0.5, 3), 1 + 0.5 + 0.25 + 0.125);
  EXPECT_EQ(ExpectedTokens(1, 8), 9);
  EXPECT_EQ(ExpectedTokens(0, 8), 1);
}

// Returns the costs of a device where a step takes `fixed` milliseconds and `each` for a token.
CostModel CostsOf(double fixed, double each) {
  CostModel costs(ComputedRows::OfBatch());
  for (int32_t i = 0; i < 300; ++i) {
    const int32_t tokens = 1 + i % 16;
    const int32_t sampled = 1 + i / 16 % tokens;
    costs.Observe({.bucket = {.tokens = 16, .sequences = 4},
                   .computed_tokens = tokens,
                   .context_tokens = tokens,
                   .distinct_positions = tokens,
                   .sampled_rows = sampled},
                  1e-3 * (fixed + each * tokens));
  }
  return costs;
}

DraftStep OneDecode(const Ladder& ladder) {
  return {.size = {.tokens = 1, .sequences = 1, .longest = 1},
          .shape = {.bucket = ladder.largest(),
                    .computed_tokens = 1,
                    .context_tokens = 1,
                    .distinct_positions = 1,
                    .sampled_rows = 1},
          .expected_tokens = 1};
}

struct DraftGainRow {
  const char* name;
  double fixed = 10, each = 0.01;  // milliseconds of a step, and of a token
  double acceptance = 0;
  double draft = 0, first_draft = 0;  // milliseconds of drafting a token, and of the first
  double wait = 0;                    // milliseconds that the device waits for drafts
  int32_t most = 8;
  int32_t least_drafts = 0, most_drafts = 0;
};
class DraftGainTable : public TableTest<DraftGainRow> {};

TEST_P(DraftGainTable, DraftsOnlyIfThisRaisesTheRate) {
  const Ladder ladder({{.tokens = 16, .sequences = 4}});
  PagedSequence sequence;
  sequence.acceptance = row().acceptance;
  sequence.draft_seconds = 1e-3 * row().draft;
  sequence.first_draft_seconds = 1e-3 * row().first_draft;
  DraftStep step = OneDecode(ladder);
  step.wait_seconds = 1e-3 * row().wait;
  const int32_t drafts =
      WorthwhileDrafts(step, sequence, row().most, ladder, CostsOf(row().fixed, row().each));
  EXPECT_GE(drafts, row().least_drafts);
  EXPECT_LE(drafts, row().most_drafts);
}

constexpr DraftGainRow kDraftGainRows[] = {
    {.name = "AllIfTheyAreRightAndNearlyFree",
     .acceptance = 0.9,
     .least_drafts = 8,
     .most_drafts = 8},
    {.name = "NoneIfTheyAreWrong", .each = 0.1},
    {.name = "NoneIfATokenCostsAsMuchAsAStep", .fixed = 0.01, .each = 1, .acceptance = 0.9},
    {.name = "AFewIfLaterOnesCostMoreThanTheyGain",
     .fixed = 1,
     .each = 0.1,
     .acceptance = 0.5,
     .least_drafts = 1,
     .most_drafts = 4},
    {.name = "AFewIfDraftingTakesTime",
     .acceptance = 0.7,
     .draft = 2,
     .least_drafts = 1,
     .most_drafts = 4},
    {.name = "NoneIfDraftingTakesAsLongAsAStep", .acceptance = 0.9, .draft = 10},
    {.name = "NoneIfThePromptOfTheDraftModelTakesTooLong", .acceptance = 0.9, .first_draft = 70},
    {.name = "AllIfTheWaitIsShort",
     .acceptance = 0.9,
     .wait = 5,
     .least_drafts = 8,
     .most_drafts = 8},
    {.name = "NoneIfTheWaitIsLong", .acceptance = 0.9, .wait = 60},
    {.name = "NoMoreThanThereAre", .acceptance = 1, .most = 3, .least_drafts = 3, .most_drafts = 3},
};
SLUICE_TABLE(DraftGainTable, kDraftGainRows);

TEST(DraftGain, DraftsNothingWhileTheCostsAreUnknown) {
  const Ladder ladder({{.tokens = 16, .sequences = 4}});
  PagedSequence sequence;
  sequence.acceptance = 1;
  EXPECT_EQ(WorthwhileDrafts(OneDecode(ladder), sequence, 8, ladder, CostModel()), 0);
}

}  // namespace
}  // namespace sluice
