#include "client/buckets_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/table.h"

namespace sluice::client {
namespace {

namespace v1 = admin::v1;
using testing::HasSubstr;

TEST(Bar, FillsInProportion) {
  EXPECT_EQ(Bar(0, 4), "[....]");
  EXPECT_EQ(Bar(0.5, 4), "[##..]");
  EXPECT_EQ(Bar(1, 4), "[####]");
  EXPECT_EQ(Bar(7, 4), "[####]");
  EXPECT_EQ(Bar(-1, 4), "[....]");
  EXPECT_EQ(Bar(std::numeric_limits<double>::quiet_NaN(), 4), "[....]");
}

TEST(AgeText, ChoosesTheUnit) {
  EXPECT_EQ(AgeText(-1), "never");
  EXPECT_EQ(AgeText(0.012), "12 ms");
  EXPECT_EQ(AgeText(2.5), "2.5 s");
  EXPECT_EQ(AgeText(240), "4 min");
  EXPECT_EQ(AgeText(7200), "2 h");
}

v1::ModelBuckets Model() {
  v1::ModelBuckets model;
  model.set_model_name("demo\x1b[31m");
  model.set_policy("packed");
  auto* used = model.add_buckets();
  used->mutable_bucket()->set_tokens(64);
  used->mutable_bucket()->set_rows(8);
  used->set_ready(true);
  used->set_in_ladder(true);
  used->set_batches(30);
  used->mutable_last_hour()->set_batches(3);
  used->mutable_last_hour()->set_rows(6);
  used->mutable_last_hour()->set_bucket_fill(0.5);
  used->mutable_last_hour()->set_executed_efficiency(1);
  used->mutable_last_hour()->set_hit_rate(1);
  used->set_cost_seconds(0.0021);
  used->set_memory_bytes(3 << 20);
  used->set_last_used_age_seconds(90);
  auto* gone = model.add_buckets();
  gone->mutable_bucket()->set_tokens(32);
  gone->mutable_bucket()->set_rows(4);
  gone->mutable_bucket()->set_positions(8);
  gone->set_last_used_age_seconds(-1);
  model.set_batches(40);
  model.mutable_last_hour()->set_batches(4);
  model.mutable_last_hour()->set_useful_tokens(60);
  model.mutable_last_hour()->set_computed_tokens(80);
  model.mutable_last_hour()->set_hit_rate(0.75);
  model.set_last_hour_seconds(3630);
  model.set_busy_share(0.431);
  model.set_wasted_share(0.123);
  model.set_useful_share(0.31);
  model.set_device_tokens_per_second(12345);
  for (int i = 1; i <= 100; ++i) {
    auto* size = model.add_lengths();
    size->set_tokens(i);
    size->set_weight(1);
  }
  model.mutable_cost_law()->set_base(60e-6);
  model.mutable_cost_law()->set_per_computed_token(4e-8);
  return model;
}

StrategyTrials Trials() {
  StrategyTrials trials;
  trials.arrivals = 4096;
  trials.trials.resize(2);
  trials.trials[0].name = "present";
  trials.trials[0].wasted_share = 0.2;
  trials.trials[1].name = "adaptive, 32 buckets";
  trials.trials[1].wasted_share = 0.041;
  trials.best = trials.trials[1].name;
  return trials;
}

TEST(BucketsText, HasALineForEachBucket) {
  const std::string text = BucketsText(Model());
  EXPECT_THAT(text,
              HasSubstr("64x8    ready            3  75.0%  50.0%  100.0%    100.0%  2.0   2.100"));
  EXPECT_THAT(text, HasSubstr("4x8p    withdrawn        0   0.0%  -"));
  EXPECT_THAT(text, HasSubstr("never"));
  EXPECT_THAT(text, testing::Not(HasSubstr("\x1b")))
      << "control characters of a server's text are escaped";
}

TEST(BucketsText, FitsATerminal) {
  v1::ModelBuckets model = Model();
  auto* large = model.add_buckets();
  *large = model.buckets(0);
  large->mutable_bucket()->set_tokens(1 << 17);
  large->mutable_bucket()->set_rows(256);
  large->set_in_ladder(false);
  large->mutable_last_hour()->set_batches(9'999'999);
  large->mutable_last_hour()->set_rows(100 * large->last_hour().batches());
  large->set_cost_seconds(9.9999);
  large->set_memory_bytes(int64_t{9999} << 20);
  model.set_batches(int64_t{1} << 40);
  model.mutable_last_hour()->set_batches(large->last_hour().batches() + 4);
  model.set_device_tokens_per_second(99'999'999);
  model.set_plan_memory_bytes(int64_t{99'999} << 20);
  model.set_activation_memory_bytes(int64_t{99'999} << 20);
  model.set_memory_limit_bytes(int64_t{99'999} << 20);
  model.set_weight_memory_bytes(int64_t{99'999} << 20);
  model.set_kv_memory_bytes(int64_t{99'999} << 20);
  model.mutable_cost_law()->set_per_bucket_token(1.23e-6);
  model.mutable_cost_law()->set_per_context_token(1.23e-6);
  model.mutable_cost_law()->set_per_distinct_position(1.23e-6);
  model.mutable_cost_law()->set_per_sampled_row(1.23e-6);
  const StrategyTrials trials = Trials();
  for (const absl::string_view line : absl::StrSplit(BucketsText(model, &trials), '\n')) {
    EXPECT_LE(line.size(), kTerminalColumns) << line;
  }
}

TEST(BucketsText, SumsUp) {
  const std::string text = BucketsText(Model());
  EXPECT_THAT(text, HasSubstr("lengths     p50 50, p90 90, p99 99, largest 100; entropy "));
  EXPECT_THAT(text, HasSubstr("batch size  none yet; entropy 0.00 bits\n"));
  EXPECT_THAT(text, HasSubstr("step cost   60 us + 0.04 us/computed token\n"));
}

TEST(BucketsText, SumsUpTheLastHour) {
  const std::string text = BucketsText(Model());
  EXPECT_THAT(text, HasSubstr("batches     4 in the last 60 min, plan cache hit rate 75.0%; 40 "
                              "since the start\n"));
  EXPECT_THAT(text,
              HasSubstr("device      busy 43.1%, useful tokens 31.0% of its 12345 tokens/s\n"));
  EXPECT_THAT(text, HasSubstr("wasted      12.3% of the device's time in the last hour, on rows "
                              "without a useful token\n"));
}

TEST(WasteText, NamesTheShareThatTheBestLadderWouldWaste) {
  const StrategyTrials trials = Trials();
  std::string text = WasteText(Model(), &trials);
  text = absl::StrReplaceAll(text, {{"\n            ", " "}});
  EXPECT_EQ(
      text,
      "wasted      12.3% of the device's time in the last hour, on rows without a useful "
      "token; the best ladder (\"adaptive, 32 buckets\") would waste 4.1%, in a simulation of "
      "the last 4096 arrivals\n");
}

TEST(WasteText, IsZeroIfOnlyUsefulTokensWereComputed) {
  v1::ModelBuckets model = Model();
  model.mutable_last_hour()->set_computed_tokens(60);
  EXPECT_FALSE(WastedTime(model));
  EXPECT_THAT(WasteText(model, nullptr), HasSubstr("0.0% of the device's time"));
  EXPECT_THAT(WasteText(model, nullptr), HasSubstr("it computed only rows with useful tokens"));
  model.clear_last_hour();
  EXPECT_THAT(WasteText(model, nullptr), HasSubstr("no batch ran in the last hour"));
}

TEST(BucketsText, AnEmptyAnswerIsShown) {
  const std::string text = BucketsText(v1::ModelBuckets());
  EXPECT_THAT(text, HasSubstr("plan cache hit rate -"));
  EXPECT_THAT(text, HasSubstr("step cost   not measured yet"));
}

TEST(ReviewText, ListsTheChangedBuckets) {
  v1::RunReviewResponse response;
  response.set_reason("no candidate gains 2%");
  EXPECT_EQ(ReviewText(response), "Unchanged: no candidate gains 2%\n");
  response.set_changed(true);
  response.set_reason("saves 12%");
  auto* added = response.add_added();
  added->set_tokens(48);
  added->set_rows(16);
  response.set_gain(0.12);
  const std::string text = ReviewText(response);
  EXPECT_THAT(text, testing::StartsWith("Changed: saves 12%\n"));
  EXPECT_THAT(text, HasSubstr("added       48x16\n"));
  EXPECT_THAT(text, HasSubstr("gain        12.0%"));
  EXPECT_THAT(text, testing::Not(HasSubstr("removed")));
}

}  // namespace
}  // namespace sluice::client
