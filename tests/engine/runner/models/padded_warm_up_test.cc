// Tests the warm-up of padded ladders.
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/models/warm_up_fixture.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

TEST_F(WarmUpTest, APaddedPolicyHasRectanglesUpToTheModelsLongestSequence) {
  EngineOptions options = SmallOptions();
  options.batch.max_batch_tokens = 256;
  options.batch.policy = PolicyKind::kStaticPadded;
  options.ladder.warm_up_us = 0;
  const absl::StatusOr<PreparedModel> fixed = Run(options);
  ASSERT_TRUE(fixed.ok()) << fixed.status();
  EXPECT_TRUE(fixed->plans->Awaited().empty()) << "a padded ladder is prepared completely";
  for (const Bucket& bucket : fixed->ladder->buckets()) EXPECT_EQ(bucket.positions, 64);
  EXPECT_EQ(fixed->ladder->largest(), Bucket::Padded(4, 64));
  options.batch.policy = PolicyKind::kPaddedBuckets;
  const absl::StatusOr<PreparedModel> columns = Run(options);
  ASSERT_TRUE(columns.ok()) << columns.status();
  EXPECT_NE(columns->ladder->Choose({.tokens = 8, .sequences = 4, .longest = 2}), nullptr);
  for (const RecordedBatch& batch : backend_.batches()) {
    EXPECT_EQ(batch.sequences.size(), static_cast<size_t>(batch.bucket.sequences));
  }
}

// The padding of rows is in separate sequences, and the slot has room for them: a rectangle may
// have up to twice its number of sequences.
TEST_F(WarmUpTest, BidirectionalRectanglesAreFilledWithPaddingSequences) {
  ModelConfig config = FakeConfig();
  config.causal = false;
  model_ = FakeModel(config);
  EngineOptions options = SmallOptions();
  options.batch.max_batch_tokens = 256;
  options.batch.policy = PolicyKind::kPaddedBuckets;
  const absl::StatusOr<PreparedModel> prepared = Run(options);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  bool padded = false;
  for (const RecordedBatch& batch : backend_.batches()) {
    size_t tokens = 0;
    for (const auto& sequence : batch.sequences) tokens += sequence.size();
    EXPECT_EQ(tokens, static_cast<size_t>(batch.bucket.tokens));
    EXPECT_LE(batch.sequences.size(), static_cast<size_t>(2 * batch.bucket.sequences));
    padded |= std::ssize(batch.sequences) > batch.bucket.sequences;
  }
  EXPECT_TRUE(padded);
}

// Plans take 10 bytes per token; the columns of 8, 16, 32 and 64 positions have 1, 2 and 4 rows.
struct PaddedLimitRow {
  const char* name;
  int64_t limit_bytes;
  std::vector<Bucket> beside_the_largest;
};
class PaddedLimitTable : public TableTest<PaddedLimitRow, WarmUpTest> {};

TEST_P(PaddedLimitTable, KeepsOnlyColumnsWithTheRowsOfTheLargestBucket) {
  EngineOptions options = SmallOptions();
  options.batch.max_batch_tokens = 256;
  options.batch.policy = PolicyKind::kPaddedBuckets;
  const size_t all = Run(options)->ladder->buckets().size();
  options.ladder.memory_limit_bytes = row().limit_bytes;
  const absl::StatusOr<PreparedModel> prepared = Run(options);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  std::vector<Bucket> expected = row().beside_the_largest;
  expected.push_back(Bucket::Padded(4, 64));
  EXPECT_THAT(prepared->ladder->buckets(), ::testing::ElementsAreArray(expected));
  EXPECT_EQ(prepared->evicted, static_cast<int64_t>(all - expected.size()));
  EXPECT_LE(prepared->plans->memory_bytes(), row().limit_bytes);
}

const PaddedLimitRow kPaddedLimitRows[] = {
    {.name = "RemovesAColumnThatIsCut", .limit_bytes = 2560 + 80 + 160, .beside_the_largest = {}},
    {.name = "KeepsACompleteColumn",
     .limit_bytes = 2560 + 80 + 160 + 320,
     .beside_the_largest = {Bucket::Padded(1, 8), Bucket::Padded(2, 8), Bucket::Padded(4, 8)}},
    {.name = "RemovesAllOfTheNextColumn",
     .limit_bytes = 2560 + 80 + 160 + 320 + 160 + 320,
     .beside_the_largest = {Bucket::Padded(1, 8), Bucket::Padded(2, 8), Bucket::Padded(4, 8)}},
};
SLUICE_TABLE(PaddedLimitTable, kPaddedLimitRows);

}  // namespace
}  // namespace sluice
