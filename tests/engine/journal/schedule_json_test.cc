#include "engine/journal/schedule_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/table.h"

namespace sluice {
namespace {

TEST(BatchOptionsJson, ReadsBackTheWrittenValues) {
  const BatchOptions options{.policy = PolicyKind::kFifoPacked,
                             .max_batch_tokens = 1000,
                             .max_batch_sequences = 7,
                             .max_queue_delay_us = 300,
                             .max_overtakes = 5,
                             .prefill_tokens = 40,
                             .continuous = false,
                             .priority_step_us = 2'000'000,
                             .padding = PaddingKind::kReflect};
  const nlohmann::json object = BatchOptionsToJson(options);
  EXPECT_EQ(object.dump(),
            R"({"continuous":false,"max_batch_sequences":7,"max_batch_tokens":1000,)"
            R"("max_overtakes":5,"max_queue_delay_us":300,"padding":"reflect",)"
            R"("policy":"fifo_packed","prefill_tokens":40,"priority_step_us":2000000})");
  const absl::StatusOr<BatchOptions> read = BatchOptionsFromJson(object);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(BatchOptionsToJson(*read), object);
}

TEST(BatchOptionsJson, SwitchesAndWordsAreOptional) {
  nlohmann::json object = BatchOptionsToJson({});
  for (const char* key : {"policy", "continuous", "padding"}) object.erase(key);
  const absl::StatusOr<BatchOptions> read = BatchOptionsFromJson(object);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(BatchOptionsToJson(*read), BatchOptionsToJson({}));
}

TEST(CostsJson, ReadsBackTheRowsOfTheDevice) {
  for (const ComputedRows& rows :
       {ComputedRows::OfBatch(), ComputedRows::OfBucket(), ComputedRows::OfLibrary(),
        ComputedRows::OfLayers(
            {{.share = 1.0 / 3, .slice = 1024, .least = 32}, {.share = 2.0 / 3, .slice = 4096}})}) {
    CostState costs{.rows = rows};
    costs.law[1] = 0.25;
    const absl::StatusOr<CostState> read = CostsFromJson(CostsToJson(costs));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->rows, rows);
  }
  nlohmann::json earlier = CostsToJson({.rows = ComputedRows::OfBatch()});
  earlier.erase("rows");
  EXPECT_EQ(CostsFromJson(earlier)->rows, ComputedRows::OfBucket());
}

TEST(CostsJson, ReadsFilesWithoutTheTermOfAdapters) {
  constexpr size_t kEarlier = kCostTerms - 1;
  CostState costs;
  for (size_t i = 0; i < kEarlier; ++i) {
    costs.law[i] = static_cast<double>(1 + i);
    for (size_t j = 0; j < kEarlier; ++j) costs.moments[i][j] = static_cast<double>(10 * i + j);
  }
  nlohmann::json file = CostsToJson(costs);
  nlohmann::json moments = nlohmann::json::array();
  for (size_t i = 0; i < kEarlier; ++i) {
    for (size_t j = 0; j < kEarlier; ++j) moments.push_back(costs.moments[i][j]);
  }
  file["moments"] = moments;
  for (const char* key : {"law", "products", "totals"}) file[key].erase(kEarlier);
  const absl::StatusOr<CostState> read = CostsFromJson(file);
  ASSERT_TRUE(read.ok()) << read.status();
  for (size_t i = 0; i < kCostTerms; ++i) {
    EXPECT_EQ(read->law[i], costs.law[i]);
    for (size_t j = 0; j < kCostTerms; ++j) EXPECT_EQ(read->moments[i][j], costs.moments[i][j]);
  }
  file["law"].erase(0);
  EXPECT_FALSE(CostsFromJson(file).ok());
}

TEST(CostsJson, ReadsBackTheExpertsOfTheModel) {
  EXPECT_FALSE(CostsToJson({}).contains("experts"));
  EXPECT_EQ(CostsFromJson(CostsToJson({}))->experts, ExpertCounts());
  const ExpertCounts counts = {.experts = 128, .chosen = 8};
  nlohmann::json costs = CostsToJson({.experts = counts});
  EXPECT_EQ(CostsFromJson(costs)->experts, counts);
  costs["experts"]["chosen"] = 129;
  EXPECT_EQ(CostsFromJson(costs).status().message(), "experts.chosen is 129, must be in [1, 128]");
  costs["experts"] = 8;
  EXPECT_EQ(CostsFromJson(costs).status().message(), "experts is not an object");
}

TEST(CostsJson, HostileRowsAreRefused) {
  const struct {
    const char* rows;
    const char* message;
  } kRows[] = {
      {R"([])", "rows is not an object"},
      {R"({"share":[1],"slice":[],"least":[]})", "rows.share must have the same length"},
      {R"({"share":1,"slice":[0],"least":[1]})", "rows.share must have the same length"},
      {R"({"share":[0],"slice":[0],"least":[1]})", "rows.share must be above 0"},
      {R"({"share":[0.6,0.6],"slice":[0,0],"least":[1,1]})", "rows.share must be above 0"},
      {R"({"share":[1],"slice":[1000],"least":[1]})", "rows.slice must be 0, or a power of two"},
      {R"({"share":[1],"slice":[16],"least":[32]})", "rows.slice must be 0, or a power of two"},
      {R"({"share":[1],"slice":[8192],"least":[1]})", "rows.slice"},
      {R"({"share":["a"],"slice":[0],"least":[1]})", "share[0] is not a finite number"},
  };
  for (const auto& row : kRows) {
    nlohmann::json costs = CostsToJson({});
    costs["rows"] = nlohmann::json::parse(row.rows);
    const absl::Status status = CostsFromJson(costs).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << row.rows;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(row.message));
  }
}

struct BadBatchOptionsRow {
  const char* name;
  const char* key;
  nlohmann::json value;
  const char* message;
};

class BadBatchOptionsTable : public TableTest<BadBatchOptionsRow> {};

TEST_P(BadBatchOptionsTable, TheErrorNamesTheKeyAndItsRange) {
  nlohmann::json object = BatchOptionsToJson({});
  object[row().key] = row().value;
  EXPECT_EQ(BatchOptionsFromJson(object).status(), absl::InvalidArgumentError(row().message));
}

const BadBatchOptionsRow kBadBatchOptionsRows[] = {
    {.name = "AMissingNumberIsRefused",
     .key = "max_overtakes",
     .value = nullptr,
     .message = "batch.max_overtakes is missing"},
    {.name = "ANumberAboveItsRangeIsRefused",
     .key = "max_queue_delay_us",
     .value = 10'000'001,
     .message = "batch.max_queue_delay_us is 10000001, must be in [0, 10000000]"},
    {.name = "ATextAsNumberIsRefused",
     .key = "prefill_tokens",
     .value = "40",
     .message = "batch.prefill_tokens is not an integer"},
    {.name = "AnUnknownWordIsRefused",
     .key = "policy",
     .value = "lifo",
     .message = "batch.policy is not supported, must be one of: packed, fifo_packed, "
                "padded_buckets, static_padded"},
    {.name = "ANumberAsSwitchIsRefused",
     .key = "continuous",
     .value = 1,
     .message = "batch.continuous is not true or false"},
};

SLUICE_TABLE(BadBatchOptionsTable, kBadBatchOptionsRows);

}  // namespace
}  // namespace sluice
