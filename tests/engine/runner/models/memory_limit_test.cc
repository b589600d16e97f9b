#include "engine/runner/models/memory_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

// Returns costs of `base` + `bucket_token` for each token of the bucket.
CostModel CostsOf(double base, double bucket_token) {
  CostState state;
  state.law[0] = base;
  state.law[1] = bucket_token;
  CostModel costs;
  costs.Restore(state);
  return costs;
}

Bucket Packed(int32_t tokens) { return {.tokens = tokens, .sequences = 4}; }

TEST(LoweredMaximumText, NamesTheSizesAndTheTimeOfATokenInFullBatches) {
  // 1 + 1 s for 100 tokens, and 1 + 0.25 s for 25 tokens: 0.02 and 0.05 s for a token.
  const std::string text =
      LoweredMaximumText(1000, Packed(100), 4000, Packed(25), CostsOf(1, 0.01));
  EXPECT_EQ(text,
            "At start, engine.ladder.memory_limit_bytes of 1000 bytes lowered the largest bucket "
            "from 100 tokens to 25 tokens: the activations of 100 tokens take 4000 bytes. By the "
            "measured costs, a token in full batches takes 150.0% more device time.");
  EXPECT_THAT(LoweredMaximumText(1000, Packed(100), 4000, Packed(25), CostModel()),
              EndsWith("take 4000 bytes."))
      << "no cost without measured steps";
}

TEST(LeftOutText, NamesTheStepThatLosesMost) {
  const Ladder kept({Packed(8), Packed(64)});
  const Bucket left_out[] = {Packed(16), Packed(48)};
  // A step of 16 tokens takes 1 + 16 s in its own bucket, and 1 + 64 s in the larger one.
  const std::string text = LeftOutText(880, left_out, kept, CostsOf(1, 1));
  EXPECT_EQ(text,
            "At start, engine.ladder.memory_limit_bytes of 880 bytes left out 2 of 4 buckets. By "
            "the measured costs, a step of 16 tokens takes 282.4% more device time in the bucket "
            "of 64 tokens.");
  EXPECT_THAT(LeftOutText(880, left_out, kept, CostModel()), EndsWith("2 of 4 buckets."));
  const CostModel live = CostsOf(1, 0);
  EXPECT_THAT(LeftOutText(880, left_out, kept, live), HasSubstr("takes 0.0% more device time"))
      << "on a device whose steps cost the same in any bucket";
}

TEST(LeftOutText, DescribesPaddedBuckets) {
  const Ladder kept({Bucket::Padded(2, 8)});
  const Bucket left_out[] = {Bucket::Padded(1, 8)};
  EXPECT_THAT(LeftOutText(1, left_out, kept, CostsOf(0, 1)),
              HasSubstr("a step of 1 rows of 8 tokens takes 100.0% more device time in the bucket "
                        "of 2 rows of 8 tokens"));
}

TEST(UnmetLimitText, IsEmptyIfTheLimitAllowsTheLargestBucket) {
  EXPECT_EQ(UnmetLimitText(0, Packed(64), 1 << 30), "") << "0 means no limit";
  EXPECT_EQ(UnmetLimitText(640, Packed(64), 640), "");
  const std::string text = UnmetLimitText(639, Packed(64), 640);
  EXPECT_THAT(text, HasSubstr("639 bytes cannot be met"));
  EXPECT_THAT(text, HasSubstr("largest bucket of 64 tokens take 640 bytes"));
  EXPECT_THAT(text, HasSubstr("Raise the limit, or lower engine.batch.max_batch_tokens."));
}

TEST(JoinedSentences, AddsASpaceOnlyBetweenSentences) {
  EXPECT_EQ(JoinedSentences("", ""), "");
  EXPECT_EQ(JoinedSentences("A.", ""), "A.");
  EXPECT_EQ(JoinedSentences("", "B."), "B.");
  EXPECT_EQ(JoinedSentences("A.", "B."), "A. B.");
}

}  // namespace
}  // namespace sluice
