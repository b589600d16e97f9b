#include "engine/schedule/step_budget.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

TEST(RunLimitsOf, AChunkFitsWithAllOtherDecodes) {
  for (int32_t tokens = 1; tokens <= 300; tokens += 7) {
    for (int32_t sequences = 1; sequences <= 300; sequences += 13) {
      for (const int32_t prefill_tokens : {0, 1, 7, 64, 512}) {
        SCOPED_TRACE(::testing::Message() << tokens << " " << sequences << " " << prefill_tokens);
        const RunLimits limits = RunLimitsOf({.prefill_tokens = prefill_tokens},
                                             {.tokens = tokens, .sequences = sequences});
        EXPECT_GE(limits.chunk_tokens, 1);
        EXPECT_GE(limits.sequences, 1);
        EXPECT_LE(limits.sequences, std::min(sequences, tokens));
        if (prefill_tokens == 0) {
          EXPECT_EQ(limits.chunk_tokens, tokens);
        } else {
          EXPECT_LE(limits.chunk_tokens, prefill_tokens);
          EXPECT_LE(limits.chunk_tokens + limits.sequences - 1, tokens);
        }
      }
    }
  }
}

struct RunLimitsRow {
  const char* name;
  int32_t tokens, sequences, prefill_tokens;
  int32_t chunk_tokens, running;  // the expected limits
};
class RunLimitsTable : public TableTest<RunLimitsRow> {};

TEST_P(RunLimitsTable, ReducesTheChunkOnlyInATightBucket) {
  const RunLimits limits = RunLimitsOf({.prefill_tokens = row().prefill_tokens},
                                       {.tokens = row().tokens, .sequences = row().sequences});
  EXPECT_EQ(limits.chunk_tokens, row().chunk_tokens);
  EXPECT_EQ(limits.sequences, row().running);
}

const RunLimitsRow kRunLimitsRows[] = {
    {.name = "AWideBucketHoldsTheWholeChunk",
     .tokens = 4096,
     .sequences = 256,
     .prefill_tokens = 512,
     .chunk_tokens = 512,
     .running = 256},
    {.name = "ATightBucketCutsTheChunk",
     .tokens = 512,
     .sequences = 256,
     .prefill_tokens = 512,
     .chunk_tokens = 257,
     .running = 256},
    {.name = "AChunkTakesHalfOfABucketOfOneTokenPerSequence",
     .tokens = 256,
     .sequences = 256,
     .prefill_tokens = 512,
     .chunk_tokens = 128,
     .running = 129},
    {.name = "ASmallBucketHoldsASmallChunk",
     .tokens = 64,
     .sequences = 8,
     .prefill_tokens = 16,
     .chunk_tokens = 16,
     .running = 8},
    {.name = "WithoutPrefillTokensOnePromptMayTakeAll",
     .tokens = 64,
     .sequences = 256,
     .prefill_tokens = 0,
     .chunk_tokens = 64,
     .running = 64},
};
SLUICE_TABLE(RunLimitsTable, kRunLimitsRows);

TEST(RunLimitsOf, OtherPoliciesComputeWholePrompts) {
  EXPECT_EQ(RunLimitsOf({.policy = PolicyKind::kFifoPacked, .prefill_tokens = 16},
                        {.tokens = 64, .sequences = 8})
                .chunk_tokens,
            64);
}

}  // namespace
}  // namespace sluice
