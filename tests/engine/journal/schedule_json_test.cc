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
