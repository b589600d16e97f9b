#include "loadtest/simulate/fixed_sets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "loadtest/simulate/comparison.h"

namespace sluice::loadtest {
namespace {

const LadderLimits kLimits{.max_tokens = 2000, .max_sequences = 16, .max_positions = 300};

TEST(FixedSetOf, HasTheServersGraphsAndExactSizesAboveThem) {
  const struct {
    const char* name;
    int64_t graphs;
    int32_t largest;
  } sets[] = {{"vllm", 67, 512},
              {"tensorrt_llm", 10, 512},
              {"tensorrt_llm_64", 8, 512},
              {"sglang", 23, 160}};
  for (const auto& set : sets) {
    SCOPED_TRACE(set.name);
    const std::optional<FixedSet> found = FixedSetOf(set.name, kLimits);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->graphs, set.graphs);
    for (int32_t tokens = 1; tokens <= kLimits.max_tokens; ++tokens) {
      const Bucket* bucket = found->ladder.Choose({tokens, 1, tokens});
      ASSERT_NE(bucket, nullptr);
      ASSERT_LE(bucket->tokens, std::max(tokens, set.largest)) << "exact above the largest";
    }
  }
  EXPECT_FALSE(FixedSetOf("none", kLimits).has_value());
  const std::optional<FixedSet> full = FixedSetOf("tensorrt_llm:full", kLimits);
  EXPECT_EQ(full->graphs, 12) << "powers of two to 1024, and the maximum";
  EXPECT_EQ(std::ssize(full->ladder.buckets()), full->graphs);
}

TEST(FixedSetOf, PadsARectangleToItsLongestSequence) {
  const std::optional<FixedSet> tei = FixedSetOf("tei", kLimits);
  ASSERT_TRUE(tei.has_value());
  constexpr uint64_t kSeed = 20261124;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 500; ++i) {
    const int32_t longest = 1 + static_cast<int32_t>(random() % 300);
    const int32_t rows = 1 + static_cast<int32_t>(random() % std::min(16, 2000 / longest));
    EXPECT_EQ(*tei->ladder.Choose({rows * longest, rows, longest}), Bucket::Padded(rows, longest));
  }
}

TEST(Compare, ComparesEachFixedSetWithTheSameNumberOfAdaptiveBuckets) {
  ComparisonOptions options;
  options.count = 600;
  options.seeds = 1;
  options.cap = 256;
  options.policies = {};
  options.fixed_sets = {"tensorrt_llm", "tei"};
  options.experiment.batch.max_batch_tokens = 1024;
  options.experiment.max_positions = 256;
  const absl::StatusOr<nlohmann::json> rows = Compare(options);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 3u);
  EXPECT_EQ((*rows)[0]["plans"], 10);
  EXPECT_EQ((*rows)[0]["captures"], 10);
  EXPECT_EQ((*rows)[1]["ladder"], "adaptive:10");
  EXPECT_LE((*rows)[1]["plans"], 10);
  EXPECT_EQ((*rows)[2]["captures"], 0);
  EXPECT_LT((*rows)[2]["bucket_fill"], (*rows)[1]["bucket_fill"]);
  options.fixed_sets = {"none"};
  EXPECT_FALSE(Compare(options).ok());
}

}  // namespace
}  // namespace sluice::loadtest
