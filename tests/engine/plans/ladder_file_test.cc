#include "engine/plans/ladder_file.h"

#include <functional>
#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"
#include "tests/support/table.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const LadderLimits kLimits{.max_tokens = 64, .max_sequences = 4};

CostModel SomeCosts() {
  CostModel costs;
  for (int32_t tokens = 1; tokens <= 64; ++tokens) {
    costs.Observe({.bucket = {.tokens = tokens <= 16 ? 16 : 64, .sequences = 4},
                   .computed_tokens = tokens,
                   .context_tokens = tokens * tokens,
                   .distinct_positions = tokens,
                   .sampled_rows = 1 + tokens % 4},
                  1e-5 * tokens + 1e-4 / 3);
  }
  return costs;
}

class LadderFileTest : public ::testing::Test {
 protected:
  LadderFile FileFor(const Model& model, const LadderLimits& limits = kLimits,
                     PolicyKind policy = PolicyKind::kPacked) {
    return LadderFile(directory_.File("ladder.json"), model, backend_.info(), algorithms_, limits,
                      policy);
  }

  // Applies `change` to a correct file and returns the result of reading it.
  absl::Status ReadChanged(const std::function<void(json*)>& change) {
    const LadderFile file = FileFor(*model_);
    EXPECT_TRUE(file.Write(ladder_, costs_.state()).ok());
    json document = json::parse(ReadTestFile(file.path()));
    change(&document);
    WriteTestFile(file.path(), document.dump());
    return file.Read().status();
  }

  TemporaryDirectory directory_;
  FakeBackend backend_;
  std::string algorithms_;
  const std::shared_ptr<const Model> model_ = FakeModel(FakeConfig());
  const Ladder ladder_{{{.tokens = 16, .sequences = 4}, {.tokens = 64, .sequences = 4}}};
  const CostModel costs_ = SomeCosts();
};

TEST_F(LadderFileTest, ReadsBackExactlyTheWrittenValues) {
  const LadderFile file = FileFor(*model_);
  EXPECT_EQ(file.Read().status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(file.Write(ladder_, costs_.state()).ok());
  ASSERT_TRUE(file.Write(ladder_, costs_.state()).ok());
  const absl::StatusOr<LadderFile::Content> content = file.Read();
  ASSERT_TRUE(content.ok()) << content.status();
  EXPECT_EQ(content->ladder, ladder_);
  CostModel restored;
  restored.Restore(content->costs);
  for (int32_t tokens = 1; tokens <= 64; ++tokens) {
    const StepShape step{.bucket = ladder_.buckets()[tokens <= 16 ? 0 : 1],
                         .computed_tokens = tokens,
                         .context_tokens = tokens,
                         .distinct_positions = 1,
                         .sampled_rows = 1};
    EXPECT_EQ(restored.Estimate(step), costs_.Estimate(step));
  }
}

struct ForeignLadderFileRow {
  const char* name;
  const char* what;
  const char* model = "fake";
  int64_t version = 1;
  int32_t vocab_size = FakeConfig().vocab_size;
  LadderLimits limits = kLimits;
  PolicyKind policy = PolicyKind::kPacked;
  const char* algorithms = "";
};
class ForeignLadderFileTable : public TableTest<ForeignLadderFileRow, LadderFileTest> {};

TEST_P(ForeignLadderFileTable, TheErrorNamesTheDifference) {
  ASSERT_TRUE(FileFor(*model_).Write(ladder_, costs_.state()).ok());
  ModelConfig config = FakeConfig();
  config.vocab_size = row().vocab_size;
  const std::shared_ptr<const Model> model = FakeModel(config, row().model, row().version);
  algorithms_ = row().algorithms;
  const absl::Status status = FileFor(*model, row().limits, row().policy).Read().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::string("different ") + row().what));
}

const ForeignLadderFileRow kForeignLadderFileRows[] = {
    {.name = "AFileOfAnotherModelIsRefused", .what = "model", .model = "other"},
    {.name = "AFileOfAnotherVersionIsRefused", .what = "version", .version = 2},
    {.name = "AFileOfOtherWeightsIsRefused", .what = "weights", .vocab_size = 98},
    {.name = "AFileOfAnotherPolicyIsRefused", .what = "policy", .policy = PolicyKind::kFifoPacked},
    {.name = "AFileOfOtherAlgorithmsIsRefused", .what = "algorithms", .algorithms = "0badcafe"},
    {.name = "AFileOfMoreTokensIsRefused",
     .what = "max_tokens",
     .limits = {.max_tokens = 65, .max_sequences = 4}},
    {.name = "AFileOfMoreSequencesIsRefused",
     .what = "max_sequences",
     .limits = {.max_tokens = 64, .max_sequences = 5}},
};
SLUICE_TABLE(ForeignLadderFileTable, kForeignLadderFileRows);

struct DamagedLadderFileRow {
  const char* name;
  std::function<void(json*)> damage;
};
class DamagedLadderFileTable : public TableTest<DamagedLadderFileRow, LadderFileTest> {};

TEST_P(DamagedLadderFileTable, RefusesADamagedFile) {
  EXPECT_TRUE(ReadChanged([](json*) {}).ok());
  EXPECT_EQ(ReadChanged(row().damage).code(), absl::StatusCode::kInvalidArgument);
}

const DamagedLadderFileRow kDamagedLadderFileRows[] = {
    {.name = "AListInsteadOfAnObjectIsRefused", .damage = [](json* d) { *d = json::array(); }},
    {.name = "AnotherVersionOfTheFormatIsRefused",
     .damage = [](json* d) { (*d)["sluice_ladder"] = 2; }},
    {.name = "AFileWithoutItsModelIsRefused", .damage = [](json* d) { d->erase("for"); }},
    {.name = "AModelThatIsANumberIsRefused", .damage = [](json* d) { (*d)["for"]["model"] = 3; }},
    {.name = "AFileWithoutALadderIsRefused", .damage = [](json* d) { d->erase("ladder"); }},
    {.name = "ALadderThatIsANumberIsRefused", .damage = [](json* d) { (*d)["ladder"] = 7; }},
    {.name = "TokensThatDecreaseAreRefused",
     .damage =
         [](json* d) {
           (*d)["ladder"]["tokens"] = {64, 16};
         }},
    {.name = "AnotherLargestBucketIsRefused",
     .damage =
         [](json* d) {
           (*d)["ladder"]["tokens"] = {16, 63};
         }},
    {.name = "ABucketOfFewerTokensThanSequencesIsRefused",
     .damage = [](json* d) { (*d)["ladder"]["tokens"] = {16}; }},
    {.name = "TokensThatOverflowAreRefused",
     .damage =
         [](json* d) {
           (*d)["ladder"]["tokens"] = {16, int64_t{1} << 40};
         }},
    {.name = "TokensThatAreTextsAreRefused",
     .damage =
         [](json* d) {
           (*d)["ladder"]["tokens"] = {16, "64"};
         }},
    {.name = "SequencesThatDecreaseAreRefused",
     .damage =
         [](json* d) {
           (*d)["ladder"]["sequences"] = {4, 3};
         }},
    {.name = "FewerSequencesThanTheLargestStepMayHaveAreRefused",
     .damage =
         [](json* d) {
           (*d)["ladder"]["sequences"] = {3, 3};
         }},
    {.name = "MoreSequencesThanTheLimitAreRefused",
     .damage =
         [](json* d) {
           (*d)["ladder"]["sequences"] = {4, 9};
         }},
    {.name = "AWiderColumnThatIsTallerIsRefused",
     .damage =
         [](json* d) {
           (*d)["ladder"] = {{"tokens", {4, 16}}, {"sequences", {1, 2}}, {"positions", {4, 8}}};
         }},
    {.name = "PositionsOfZeroAreRefused",
     .damage =
         [](json* d) {
           (*d)["ladder"]["positions"] = {4, 0};
         }},
    {.name = "ALawOfTwoNumbersIsRefused",
     .damage =
         [](json* d) {
           (*d)["costs"]["law"] = {1, 2};
         }},
    {.name = "ANegativeLawIsRefused", .damage = [](json* d) { (*d)["costs"]["law"][0] = -1; }},
    {.name = "MomentsThatAreANumberAreRefused",
     .damage = [](json* d) { (*d)["costs"]["moments"] = 3; }},
    {.name = "CostsWithoutBucketsAreRefused",
     .damage = [](json* d) { (*d)["costs"].erase("buckets"); }},
    {.name = "AWeightThatIsAListIsRefused",
     .damage = [](json* d) { (*d)["costs"]["weight"] = {1}; }},
};
SLUICE_TABLE(DamagedLadderFileTable, kDamagedLadderFileRows);

TEST_F(LadderFileTest, RefusesAFileThatIsNotJson) {
  const LadderFile file = FileFor(*model_);
  for (const char* text : {"", "{", "nonsense", "[[[[[[[[1]]]]]]]]"}) {
    WriteTestFile(file.path(), text);
    EXPECT_EQ(file.Read().status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

// tests/base/atomic_file_test.cc tests that a failed write leaves the old file.
TEST_F(LadderFileTest, AFailedWriteReturnsAnError) {
  const LadderFile nowhere(directory_.File("no/such/directory"), *model_, backend_.info(),
                           algorithms_, kLimits, PolicyKind::kPacked);
  EXPECT_EQ(nowhere.Write(ladder_, costs_.state()).code(), absl::StatusCode::kUnavailable);
}

EngineOptions OptionsWith(const std::string& file) {
  EngineOptions options = SmallOptions();
  options.ladder.strategy = StrategyKind::kAdaptive;
  options.ladder.review.interval_us = 0;
  options.ladder.file = file;
  return options;
}

TEST_F(LadderFileTest, AnEngineStartsWithTheLadderAndCostsOfTheFile) {
  const EngineOptions options = OptionsWith(directory_.File("ladder.json"));
  const Ladder fitted({{.tokens = 11, .sequences = 4}, {.tokens = 64, .sequences = 4}});
  ASSERT_TRUE(FileFor(*model_).Write(fitted, costs_.state()).ok());
  {
    Harness harness(options);
    const ModelStats stats = harness.engine->Stats()[0];
    ASSERT_EQ(stats.buckets.size(), 2u);
    EXPECT_EQ(stats.buckets[0].bucket.tokens, 11);
    // The costs come from the file: the fake clock measures none.
    EXPECT_GT(stats.costs.law[0] + stats.costs.law[1], 0);
    EXPECT_TRUE(harness.observer.notices().empty());
    WriteTestFile(options.ladder.file, "damaged");
  }
  EXPECT_EQ(FileFor(*model_).Read()->ladder, fitted);  // written when the engine ended
  WriteTestFile(options.ladder.file, "damaged");
  Harness harness(options);
  EXPECT_GT(harness.engine->Stats()[0].buckets.size(), 2u);
  ASSERT_EQ(harness.observer.notices().size(), 1u);
  EXPECT_THAT(harness.observer.notices()[0], HasSubstr("is ignored"));
}

TEST_F(LadderFileTest, AcceptsALadderOfExactlyMaxBuckets) {
  EngineOptions options = OptionsWith(directory_.File("ladder.json"));
  const Ladder fitted({{.tokens = 11, .sequences = 4},
                       {.tokens = 40, .sequences = 4},
                       {.tokens = 64, .sequences = 4}});
  ASSERT_TRUE(FileFor(*model_).Write(fitted, costs_.state()).ok());
  options.ladder.max_buckets = 3;
  {
    Harness harness(options);
    EXPECT_TRUE(harness.observer.notices().empty());
    EXPECT_EQ(harness.engine->Stats()[0].buckets[0].bucket.tokens, 11);
  }
  ASSERT_TRUE(FileFor(*model_).Write(fitted, costs_.state()).ok());
  options.ladder.max_buckets = 2;
  Harness harness(options);
  ASSERT_EQ(harness.observer.notices().size(), 1u);
  EXPECT_THAT(harness.observer.notices()[0],
              HasSubstr("it has more than engine.ladder.max_buckets of 2 buckets"));
}

// A folder at this path does not count as a missing file.
TEST_F(LadderFileTest, ReportsAFileThatCannotBeRead) {
  Harness harness(OptionsWith(directory_.path()));
  ASSERT_GE(harness.observer.notices().size(), 1u);
  EXPECT_THAT(harness.observer.notices()[0],
              ::testing::AllOf(HasSubstr("is ignored"), HasSubstr("Is a directory")));
}

TEST_F(LadderFileTest, AFixedLadderReadsOnlyTheCosts) {
  EngineOptions options = OptionsWith(directory_.File("ladder.json"));
  const Ladder fitted({{.tokens = 11, .sequences = 4}, {.tokens = 64, .sequences = 4}});
  ASSERT_TRUE(FileFor(*model_).Write(fitted, costs_.state()).ok());
  options.ladder.strategy = StrategyKind::kFixed;
  options.ladder.fixed_tokens = {32};
  Harness harness(options);
  const ModelStats stats = harness.engine->Stats()[0];
  EXPECT_EQ(stats.buckets[0].bucket.tokens, 32);
  EXPECT_GT(stats.costs.law[0] + stats.costs.law[1], 0);
}

}  // namespace
}  // namespace sluice
