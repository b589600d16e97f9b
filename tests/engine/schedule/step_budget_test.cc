#include "engine/schedule/step_budget.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "tests/support/table.h"

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

struct Limits {
  std::string name;
  int32_t tokens = 0, sequences = 0;  // of the largest bucket
  int32_t prefill_tokens = 0;
  int32_t chunk_tokens = 0, running = 0;  // expected
};
void PrintTo(const Limits& row, std::ostream* out) { *out << row.name; }

class RunLimitsTable : public ::testing::TestWithParam<Limits> {};

TEST_P(RunLimitsTable, AreTheRows) {
  const Limits& row = GetParam();
  const RunLimits limits = RunLimitsOf({.prefill_tokens = row.prefill_tokens},
                                       {.tokens = row.tokens, .sequences = row.sequences});
  EXPECT_EQ(limits.chunk_tokens, row.chunk_tokens);
  EXPECT_EQ(limits.sequences, row.running);
}

INSTANTIATE_TEST_SUITE_P(StepBudget, RunLimitsTable,
                         ::testing::Values(Limits{.name = "a large bucket limits neither",
                                                  .tokens = 4096,
                                                  .sequences = 256,
                                                  .prefill_tokens = 512,
                                                  .chunk_tokens = 512,
                                                  .running = 256},
                                           Limits{.name = "a tight bucket shortens the chunk",
                                                  .tokens = 512,
                                                  .sequences = 256,
                                                  .prefill_tokens = 512,
                                                  .chunk_tokens = 257,
                                                  .running = 256},
                                           Limits{.name = "a chunk keeps half of the bucket",
                                                  .tokens = 256,
                                                  .sequences = 256,
                                                  .prefill_tokens = 512,
                                                  .chunk_tokens = 128,
                                                  .running = 129},
                                           Limits{.name = "a small bucket with few sequences",
                                                  .tokens = 64,
                                                  .sequences = 8,
                                                  .prefill_tokens = 16,
                                                  .chunk_tokens = 16,
                                                  .running = 8},
                                           Limits{.name = "prompts that are not cut",
                                                  .tokens = 64,
                                                  .sequences = 256,
                                                  .prefill_tokens = 0,
                                                  .chunk_tokens = 64,
                                                  .running = 64}),
                         RowName<Limits>);

TEST(RunLimitsOf, OtherPoliciesComputeWholePrompts) {
  EXPECT_EQ(RunLimitsOf({.policy = PolicyKind::kFifoPacked, .prefill_tokens = 16},
                        {.tokens = 64, .sequences = 8})
                .chunk_tokens,
            64);
}

}  // namespace
}  // namespace sluice
