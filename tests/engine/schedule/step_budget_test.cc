#include "engine/schedule/step_budget.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(RunLimitsOf, AChunkFitsBesideAllOtherDecodes) {
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

TEST(RunLimitsOf, GivesWayOnlyWhereTheBucketIsTight) {
  struct {
    int32_t tokens, sequences, prefill_tokens, chunk_tokens, running;
  } const cases[] = {{4096, 256, 512, 512, 256},
                     {512, 256, 512, 257, 256},
                     {256, 256, 512, 128, 129},
                     {64, 8, 16, 16, 8},
                     {64, 256, 0, 64, 64}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.tokens);
    const RunLimits limits = RunLimitsOf({.prefill_tokens = c.prefill_tokens},
                                         {.tokens = c.tokens, .sequences = c.sequences});
    EXPECT_EQ(limits.chunk_tokens, c.chunk_tokens);
    EXPECT_EQ(limits.sequences, c.running);
  }
}

TEST(RunLimitsOf, OtherPoliciesComputeWholePrompts) {
  EXPECT_EQ(RunLimitsOf({.policy = PolicyKind::kFifoPacked, .prefill_tokens = 16},
                        {.tokens = 64, .sequences = 8})
                .chunk_tokens,
            64);
}

}  // namespace
}  // namespace sluice
