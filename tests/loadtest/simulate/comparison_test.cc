#include "loadtest/simulate/comparison.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::loadtest {
namespace {

using ::testing::HasSubstr;

ComparisonOptions Small() {
  ComparisonOptions options;
  options.count = 3000;
  options.seeds = 1;
  options.ladders = {"geometric:2"};
  options.experiment.batch.max_batch_tokens = 16384;
  return options;
}

double Value(const nlohmann::json& rows, const std::string& policy, const std::string& field) {
  for (const nlohmann::json& row : rows) {
    if (row["policy"] == policy) return row[field].get<double>();
  }
  ADD_FAILURE() << "no row of " << policy;
  return 0;
}

TEST(Compare, RanksPoliciesInTheExpectedOrder) {
  const auto rows = Compare(Small());
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 4u);
  const auto efficiency = [&](const std::string& policy) {
    return Value(*rows, policy, "bucket_fill");
  };
  EXPECT_GT(efficiency("packed"), efficiency("fifo_packed"));
  EXPECT_GT(efficiency("fifo_packed"), efficiency("padded_buckets"));
  EXPECT_GT(efficiency("padded_buckets"), efficiency("static_padded"));
  EXPECT_LT(Value(*rows, "packed", "p99_ms"), Value(*rows, "fifo_packed", "p99_ms"));
  for (const nlohmann::json& row : *rows) EXPECT_EQ(row["sequences"], 1500);
  EXPECT_THAT(ToMarkdown(*rows), HasSubstr("| packed | geometric:2 | 0."));
}

TEST(Compare, TheSameSeedGivesTheSameNumbers) {
  ComparisonOptions options = Small();
  options.policies = {"packed"};
  options.process = "bursty";
  options.deadline_seconds = 2e-3;
  const auto first = Compare(options);
  const auto second = Compare(options);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(*first, *second);
  options.first_seed = 2;
  EXPECT_NE(*first, *Compare(options));
}

// The same sequences take longer if steps read the matrices of more adapters.
TEST(Compare, AStepCostsMoreForEachDistinctAdapter) {
  const auto median = [](uint64_t adapters, double seconds) {
    ComparisonOptions options = Small();
    options.policies = {"packed"};
    options.loads = {0.3};
    options.adapters = adapters;
    options.experiment.costs.seconds_per_adapter = seconds;
    const auto rows = Compare(options);
    EXPECT_TRUE(rows.ok()) << rows.status();
    return Value(*rows, "packed", "p50_ms");
  };
  constexpr double kSeconds = 20e-6;
  EXPECT_EQ(median(0, kSeconds), median(0, 0));
  EXPECT_GT(median(1, kSeconds), median(0, 0));
  EXPECT_GT(median(8, kSeconds), median(1, kSeconds));
}

TEST(Compare, NamesAWrongValue) {
  const auto error = [](ComparisonOptions options) {
    return std::string(Compare(options).status().message());
  };
  ComparisonOptions options = Small();
  options.policies = {"lifo"};
  EXPECT_THAT(error(options), HasSubstr("lifo"));
  options = Small();
  options.ladders = {"geometric:x"};
  EXPECT_THAT(error(options), HasSubstr("geometric:x"));
  options = Small();
  options.ladders = {"geometric:0.5"};
  EXPECT_THAT(error(options), HasSubstr("ratio"));
  options = Small();
  options.orders = {"backwards"};
  EXPECT_THAT(error(options), HasSubstr("backwards"));
}

}  // namespace
}  // namespace sluice::loadtest
