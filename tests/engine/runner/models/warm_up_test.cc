#include "engine/runner/models/warm_up.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"
#include "tests/engine/runner/models/warm_up_fixture.h"
#include "tests/support/scheduling.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Each bucket runs twice, first to touch its memory and then to be timed, in two shapes.
TEST_F(WarmUpTest, PreparesAndTimesEveryBucketInTwoShapes) {
  backend_.OnReplay([this](const RecordedBatch& batch) {
    clock_.Advance(std::chrono::milliseconds(batch.bucket.tokens));
    return absl::OkStatus();
  });
  EngineOptions options = SmallOptions();
  options.batch.max_batch_tokens = 200;
  const absl::StatusOr<PreparedModel> prepared = Run(options);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_THAT(TokensOf(prepared->ladder->buckets()), ElementsAre(8, 16, 32, 64, 128, 200));
  EXPECT_EQ(observer_.plans().size(), 6u);
  const std::vector<RecordedBatch> batches = backend_.batches();
  ASSERT_EQ(batches.size(), 4u * 6u);
  for (size_t b = 0; b < batches.size(); ++b) {
    const Bucket& bucket = batches[b].bucket;
    EXPECT_EQ(bucket, prepared->ladder->buckets()[b / 4]);
    int32_t tokens = 0;
    for (const auto& sequence : batches[b].sequences) {
      tokens += static_cast<int32_t>(sequence.size());
      EXPECT_LE(sequence.size(), 64u);  // the model's max_positions
    }
    const bool filled = b % 4 < 2;
    EXPECT_EQ(tokens, filled ? bucket.tokens : bucket.tokens / 2);
    EXPECT_EQ(batches[b].sequences.size(),
              filled ? static_cast<size_t>((bucket.tokens + 63) / 64) : 4u);
  }
  const CostState costs = prepared->costs.state();
  ASSERT_EQ(costs.buckets.size(), 6u);
  for (const BucketCost& cost : costs.buckets) {
    EXPECT_NEAR(cost.mean_seconds, cost.bucket.tokens * 1e-3, 1e-9);
  }
}

// The largest bucket runs until the device's clock has had time to rise. After that, one slow run
// of five does not change the measured time.
TEST_F(WarmUpTest, WarmsADeviceWithRisingClockAndTakesTheMedianTime) {
  FakeBackend device(FakeBackend::Options{.timed_runs = 5});
  int replays = 0;
  device.OnReplay([&](const RecordedBatch& batch) {
    const bool slow = replays++ < 4 || replays % 6 == 0;
    clock_.Advance(std::chrono::milliseconds(batch.bucket.tokens * (slow ? 3 : 1)));
    return absl::OkStatus();
  });
  EngineOptions options = SmallOptions();
  options.batch.max_batch_tokens = 64;
  const absl::StatusOr<PreparedModel> prepared =
      WarmUp(model_, options, &device, &clock_, &observer_);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  // The largest bucket takes 192 ms at first: two runs reach 300 ms in each of two shapes. Then
  // each of four buckets runs once untimed and five times timed in both shapes.
  EXPECT_EQ(replays, 2 * 2 + 4 * 2 * 6);
  for (const BucketCost& cost : prepared->costs.state().buckets) {
    EXPECT_NEAR(cost.mean_seconds, cost.bucket.tokens * 1e-3, 1e-9);
  }
}

// A step takes a millisecond per token of its bucket, and each bucket runs four times: 32 ms for
// the smallest, 64 ms for the next, and so on.
struct TimeRow {
  const char* name;
  int64_t warm_up_ms;
  std::vector<int32_t> timed;  // buckets with known costs
  std::vector<int32_t> awaited;
};
class TimeTable : public TableTest<TimeRow, WarmUpTest> {};

TEST_P(TimeTable, BucketsWithoutTimeAreAwaited) {
  backend_.OnReplay([this](const RecordedBatch& batch) {
    clock_.Advance(std::chrono::milliseconds(batch.bucket.tokens));
    return absl::OkStatus();
  });
  EngineOptions options = SmallOptions();
  options.ladder.warm_up_us = row().warm_up_ms * 1000;
  const MonoTime begin = clock_.Now();
  const absl::StatusOr<PreparedModel> prepared = Run(options);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_THAT(TokensOf(prepared->ladder->buckets()), ElementsAre(8, 16, 32, 64));
  EXPECT_EQ(TokensOf(prepared->plans->Awaited()), row().awaited);
  std::vector<int32_t> timed;
  for (const BucketCost& cost : prepared->costs.state().buckets) {
    timed.push_back(cost.bucket.tokens);
  }
  EXPECT_EQ(timed, row().timed);
  EXPECT_GT(prepared->costs.Estimate({.bucket = {.tokens = 64, .sequences = 4}}), 0);
  EXPECT_EQ(prepared->duration, clock_.Now() - begin);
}

const TimeRow kTimeRows[] = {
    {.name = "TimesOnlyTheSmallestIfThereIsNoTime",
     .warm_up_ms = 0,
     .timed = {8},
     .awaited = {16, 32}},
    {.name = "DoesNotBeginAStepThatWouldEndTooLate",
     .warm_up_ms = 32 + 64,
     .timed = {8},
     .awaited = {16, 32}},
    {.name = "BeginsAStepThatEndsInTime", .warm_up_ms = 97, .timed = {8, 16}, .awaited = {32}},
    {.name = "TimesTheLargestLast", .warm_up_ms = 225, .timed = {8, 16, 32}, .awaited = {}},
    {.name = "TimesAllIfThereIsTime", .warm_up_ms = 481, .timed = {8, 16, 32, 64}, .awaited = {}},
};
SLUICE_TABLE(TimeTable, kTimeRows);

// The largest bucket is prepared first; it takes the given time, and 10 bytes for each of its 64
// tokens.
struct PriceRow {
  const char* name;
  int32_t device_buckets;  // BackendInfo::max_buckets
  int64_t capture_us, warm_up_us, free_bytes;
  int32_t buckets;  // the most of a ladder
};
class PriceTable : public TableTest<PriceRow, WarmUpTest> {};

TEST_P(PriceTable, TheFirstCaptureDecidesTheNumberOfBuckets) {
  FakeBackend device({.free_memory = row().free_bytes, .max_buckets = row().device_buckets});
  device.OnPrepare([this](const Bucket&) {
    clock_.Advance(std::chrono::microseconds(row().capture_us));
    return absl::OkStatus();
  });
  EngineOptions options = SmallOptions();
  options.ladder.max_buckets = 0;
  options.ladder.warm_up_us = row().warm_up_us;
  const absl::StatusOr<PreparedModel> prepared =
      WarmUp(model_, options, &device, &clock_, &observer_);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(prepared->limits.max_buckets, row().buckets);
  EXPECT_EQ(prepared->limits.MaxBuckets(options.ladder), row().buckets);
  options.ladder.max_buckets = 3;
  EXPECT_EQ(prepared->limits.MaxBuckets(options.ladder), 3) << "the option has priority";
}

constexpr int64_t kPlenty = 1 << 20;
const PriceRow kPriceRows[] = {
    {"ThoseThatFitIntoTheWarmUp", 256, 600, 60'000, kPlenty, 100},
    {"AtMostTheDevicesMaximum", 256, 600, 600'000, kPlenty, 256},
    {"ThoseThatFitIntoHalfOfTheFreeMemory", 256, 1, 600'000, 640 * 120, 60},
    {"Always16", 256, 600, 0, kPlenty, 16},
    {"FewerIfTheDeviceHasFewer", 8, 600, 600'000, kPlenty, 8},
    {"ADefaultOf16IsNotRaised", 16, 1, 600'000, kPlenty, 16},
};
SLUICE_TABLE(PriceTable, kPriceRows);

// A ladder of one large bucket is timed at doubling sizes until the time is over.
TEST_F(WarmUpTest, ALargeBucketIsTimedAtSmallSizesFirst) {
  backend_.OnReplay([this](const RecordedBatch& batch) {
    for (const auto& sequence : batch.sequences) {
      clock_.Advance(std::chrono::milliseconds(sequence.size()));
    }
    return absl::OkStatus();
  });
  EngineOptions options = SmallOptions();
  options.ladder.max_buckets = 1;
  options.ladder.warm_up_us = 400'000;
  ASSERT_TRUE(Run(options).ok());
  int32_t most = 0;
  for (const RecordedBatch& batch : backend_.batches()) {
    EXPECT_EQ(batch.bucket.tokens, 64);
    int32_t tokens = 0;
    for (const auto& sequence : batch.sequences) tokens += static_cast<int32_t>(sequence.size());
    most = std::max(most, tokens);
  }
  // Each size runs twice filled and twice half: 16 take 48 ms and 32 take 96 ms, 64 would take 192.
  EXPECT_EQ(backend_.batches().size(), 3u * 4u);
  EXPECT_EQ(most, 64);
  backend_.ForgetBatches();
  options.ladder.warm_up_us = 300'000;
  ASSERT_TRUE(Run(options).ok());
  EXPECT_EQ(backend_.batches().size(), 2u * 4u);
}

TEST_F(WarmUpTest, FillsBucketsUpToTheSequenceLimit) {
  EngineOptions options = SmallOptions();
  options.batch.max_batch_tokens = 4096;  // 4 sequences of 64 positions fill 256
  ASSERT_TRUE(Run(options).ok());
  EXPECT_EQ(backend_.batches().back().bucket.tokens, 4096);
  EXPECT_EQ(backend_.batches().back().sequences.size(), 4u);
}

// The buckets have 8, 16, 32 and 64 tokens and take 10 bytes per token.
struct MemoryLimitRow {
  const char* name;
  int64_t limit_bytes;
  std::vector<int32_t> tokens;
};
class MemoryLimitTable : public TableTest<MemoryLimitRow, WarmUpTest> {};

TEST_P(MemoryLimitTable, DropsTheLargestBucketsBelowTheMaximum) {
  EngineOptions options = SmallOptions();
  options.ladder.memory_limit_bytes = row().limit_bytes;
  const absl::StatusOr<PreparedModel> prepared = Run(options);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(TokensOf(prepared->ladder->buckets()), row().tokens);
  size_t ready = 0;
  for (const BucketStats& bucket : prepared->plans->Stats()) ready += bucket.ready ? 1 : 0;
  EXPECT_EQ(ready, row().tokens.size());
  if (row().limit_bytes >= 640) {
    EXPECT_LE(prepared->plans->memory_bytes(), row().limit_bytes);
  }
}

const MemoryLimitRow kMemoryLimitRows[] = {
    {.name = "KeepsAllWithoutALimit", .limit_bytes = 0, .tokens = {8, 16, 32, 64}},
    {.name = "KeepsAllIfAllFit", .limit_bytes = 1200, .tokens = {8, 16, 32, 64}},
    {.name = "DropsOneIfOneByteIsMissingForAll", .limit_bytes = 1199, .tokens = {8, 16, 64}},
    {.name = "KeepsThreeIfThreeFit", .limit_bytes = 880, .tokens = {8, 16, 64}},
    {.name = "DropsTwoIfOneByteIsMissingForThree", .limit_bytes = 879, .tokens = {8, 64}},
    {.name = "KeepsTwoIfTwoFit", .limit_bytes = 720, .tokens = {8, 64}},
    {.name = "KeepsTheMaximumIfOneByteIsMissingForTwo", .limit_bytes = 719, .tokens = {64}},
    {.name = "KeepsTheMaximumAtAnyLimit", .limit_bytes = 1, .tokens = {64}},
};
SLUICE_TABLE(MemoryLimitTable, kMemoryLimitRows);

// Plans take 10 bytes per token, and the activations of the maximum 2 more.
TEST_F(WarmUpTest, TheLimitIncludesActivationsAndExcludedBucketsCountAsEvicted) {
  FakeBackend device(FakeBackend::Options{.activation_bytes_per_token = 2});
  device.OnReplay([this](const RecordedBatch& batch) {
    clock_.Advance(std::chrono::microseconds(batch.bucket.tokens));
    return absl::OkStatus();
  });
  EngineOptions options = SmallOptions();
  const auto run = [&](int64_t limit_bytes) {
    options.ladder.memory_limit_bytes = limit_bytes;
    return WarmUp(model_, options, &device, &clock_, &observer_);
  };
  const absl::StatusOr<PreparedModel> all = run(1200 + 128);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(TokensOf(all->ladder->buckets()), ElementsAre(8, 16, 32, 64));
  EXPECT_EQ(all->evicted, 0);
  EXPECT_EQ(all->memory_limit_effect, "");
  EXPECT_TRUE(observer_.notices().empty());
  const absl::StatusOr<PreparedModel> fewer = run(1200 + 127);
  EXPECT_THAT(TokensOf(fewer->ladder->buckets()), ElementsAre(8, 16, 64));
  EXPECT_EQ(fewer->evicted, 1);
  EXPECT_THAT(fewer->memory_limit_effect, HasSubstr("1327 bytes left out 1 of 4 buckets"));
  EXPECT_THAT(fewer->memory_limit_effect, HasSubstr("a step of 32 tokens takes 100.0% more"));
  EXPECT_THAT(observer_.notices(), ElementsAre(HasSubstr(fewer->memory_limit_effect)));
  EXPECT_EQ(run(1)->evicted, 3);
  EXPECT_THAT(observer_.notices().back(), HasSubstr("cannot be met"));
}

// The activations take 2 bytes per token of the largest bucket.
TEST_F(WarmUpTest, AMaximumThatIsNotRequiredIsReducedToTheLimit) {
  FakeBackend device(
      FakeBackend::Options{.plan_bytes_per_token = 0, .activation_bytes_per_token = 2});
  EngineOptions options = SmallOptions();
  options.batch.max_batch_tokens = 0;
  const auto largest = [&](int64_t limit_bytes) {
    options.ladder.memory_limit_bytes = limit_bytes;
    const auto prepared = WarmUp(model_, options, &device, &clock_, &observer_);
    EXPECT_TRUE(prepared.ok()) << prepared.status();
    return prepared->ladder->largest().tokens;
  };
  EXPECT_EQ(largest(0), 4096);
  EXPECT_EQ(largest(8192), 4096);
  EXPECT_TRUE(observer_.notices().empty());
  EXPECT_EQ(largest(8191), 2048);
  EXPECT_THAT(
      observer_.notices(),
      ElementsAre(AllOf(
          HasSubstr(
              "from 4096 tokens to 2048 tokens: the activations of 4096 tokens take 8192 bytes"),
          HasSubstr("Raise the limit"))));
  EXPECT_EQ(largest(1000), 256);
  options.batch.max_batch_tokens = 512;
  EXPECT_EQ(largest(1000), 512) << "a required maximum is kept";
  EXPECT_THAT(observer_.notices().back(),
              HasSubstr("1000 bytes cannot be met: the plan and the activations of the largest "
                        "bucket of 512 tokens take 1024 bytes"));
}

TEST_F(WarmUpTest, AModelThatDoesNotFitTheFreeMemoryIsRefused) {
  EngineOptions options = SmallOptions();
  for (const bool fits : {true, false}) {
    FakeBackend device(FakeBackend::Options{.activation_bytes_per_token = 10,
                                            .free_memory = fits ? 1 << 20 : 640});
    const auto prepared = WarmUp(model_, options, &device, &clock_, &observer_);
    EXPECT_EQ(prepared.ok(), fits);
    if (fits) continue;
    EXPECT_TRUE(absl::IsResourceExhausted(prepared.status()));
    const std::string message(prepared.status().message());
    EXPECT_THAT(message,
                HasSubstr("640 bytes of activations (engine.batch.max_batch_tokens is 64)"));
    EXPECT_THAT(message, HasSubstr("(engine.kv.memory_bytes), but only 640 are free"));
  }
}

TEST_F(WarmUpTest, TheDefaultBatchHoldsTheLongestSequenceIfPromptsAreNotCut) {
  EngineOptions options = SmallOptions();
  options.batch.max_batch_tokens = 0;
  EXPECT_EQ(Run(options)->ladder->largest().tokens, 4096);
  ModelConfig config = FakeConfig();
  config.max_positions = 5000;
  model_ = FakeModel(config);
  EXPECT_EQ(Run(options)->ladder->largest().tokens, 4096);
  options.batch.policy = PolicyKind::kFifoPacked;
  EXPECT_EQ(Run(options)->ladder->largest().tokens, 5000);
  options.batch.policy = PolicyKind::kPacked;
  config.causal = false;
  model_ = FakeModel(config);
  EXPECT_EQ(Run(options)->ladder->largest().tokens, 5000);
}

TEST_F(WarmUpTest, ErrorsNameTheInvalidOption) {
  EngineOptions options = SmallOptions();
  options.batch.policy = PolicyKind::kFifoPacked;
  options.batch.max_batch_tokens = 63;
  absl::Status status = Run(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("engine.batch.max_batch_tokens is 63"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the minimum is 64, the model's max_positions"));

  options = SmallOptions();
  options.ladder.strategy = StrategyKind::kGeometric;
  options.ladder.ratio = 0.5;
  EXPECT_THAT(std::string(Run(options).status().message()), HasSubstr("ratio"));

  ModelConfig config = FakeConfig();
  config.max_positions = int64_t{1} << 40;
  model_ = FakeModel(config);
  options.batch.max_batch_tokens = 0;
  status = Run(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_positions"));
}

TEST_F(WarmUpTest, ACheckOfTheOptionsFindsTheErrorsThatNeedNoWeights) {
  const auto expect_the_same = [&](const EngineOptions& options, const char* named) {
    const absl::Status checked = CheckOptions(options, *model_, backend_);
    EXPECT_EQ(checked, Run(options).status());
    EXPECT_THAT(std::string(checked.message()), HasSubstr(named));
  };
  expect_the_same(SmallOptions(), "");
  EngineOptions options = SmallOptions();
  options.batch.policy = PolicyKind::kFifoPacked;
  options.batch.max_batch_tokens = 63;
  expect_the_same(options, "engine.batch.max_batch_tokens is 63");
  options = SmallOptions();
  options.ladder.strategy = StrategyKind::kFixed;
  options.ladder.fixed_tokens = {65};
  expect_the_same(options, "engine.ladder, or the model's own ladder: fixed_tokens has 65");
  options = SmallOptions();
  options.kv.memory_bytes = 18 * 4;
  expect_the_same(options, "engine.kv.memory_bytes of 72 holds 18 pages of 4 bytes");
  options.kv.memory_bytes = 19 * 4;
  expect_the_same(options, "");
  // The memory limit may lower the largest step, so that fewer pages suffice.
  options.batch.max_batch_tokens = 0;
  options.ladder.memory_limit_bytes = 1;
  EXPECT_EQ(CheckOptions(options, *model_, backend_), absl::OkStatus());
}

// A step of 512 tokens takes 131 pages of 4 bytes, and a step of 64 tokens takes 19.
TEST_F(WarmUpTest, ACheckOfTheOptionsAllowsForSmallerSteps) {
  EngineOptions options = SmallOptions();
  options.batch.max_batch_tokens = 0;
  for (const int64_t free_bytes : {8'000, 1 << 20}) {
    FakeBackend device({.activation_bytes_per_token = 10, .free_memory = free_bytes});
    const auto run = [&] { return WarmUp(model_, options, &device, &clock_, &observer_); };
    options.kv.memory_bytes = 131 * 4;
    EXPECT_EQ(CheckOptions(options, *model_, device), absl::OkStatus());
    const absl::StatusOr<PreparedModel> prepared = run();
    ASSERT_TRUE(prepared.ok()) << prepared.status();
    EXPECT_EQ(prepared->limits.max_tokens, 512);
    EXPECT_THAT(observer_.notices().back(), HasSubstr("and engine.kv.memory_bytes is 524"));
    options.kv.memory_bytes = 18 * 4;
    const absl::Status checked = CheckOptions(options, *model_, device);
    EXPECT_THAT(std::string(checked.message()), HasSubstr("the minimum is 19 pages"));
    EXPECT_EQ(checked, run().status());
    EngineOptions fixed = options;
    fixed.ladder.strategy = StrategyKind::kFixed;
    fixed.ladder.fixed_tokens = {64, 1024};
    fixed.kv.memory_bytes = 131 * 4;
    const absl::Status of_fixed = CheckOptions(fixed, *model_, device);
    EXPECT_THAT(std::string(of_fixed.message()), HasSubstr("for the largest step (1024 tokens)"));
    EXPECT_EQ(of_fixed, WarmUp(model_, fixed, &device, &clock_, &observer_).status());
  }
}

TEST_F(WarmUpTest, ReturnsErrorsOfTheBackend) {
  backend_.OnPrepare([](const Bucket& bucket) {
    return bucket.tokens == 32 ? absl::InternalError("32") : absl::OkStatus();
  });
  EXPECT_EQ(Run(SmallOptions()).status().code(), absl::StatusCode::kInternal);
  backend_.OnPrepare(nullptr);
  backend_.OnReplay([](const RecordedBatch&) { return absl::DataLossError("broken"); });
  EXPECT_EQ(Run(SmallOptions()).status().code(), absl::StatusCode::kDataLoss);
}

// Only the largest bucket is required; it runs without a captured plan if it must. Other buckets
// without memory are left out, with a notice.
TEST_F(WarmUpTest, SkipsBucketsWithoutMemoryForTheirPlan) {
  const auto fails_from = [this](int32_t first, int32_t last) {
    backend_.OnPrepare([=](const Bucket& bucket) {
      return bucket.tokens >= first && bucket.tokens <= last
                 ? absl::ResourceExhaustedError("no memory")
                 : absl::OkStatus();
    });
  };
  fails_from(16, 32);
  const absl::StatusOr<PreparedModel> prepared = Run(SmallOptions());
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_THAT(TokensOf(prepared->ladder->buckets()), ElementsAre(8, 64));
  EXPECT_THAT(observer_.notices(), ElementsAre(HasSubstr("cut short at 16 tokens")));
  fails_from(0, 64);
  const absl::StatusOr<PreparedModel> eager = Run(SmallOptions());
  ASSERT_TRUE(eager.ok()) << eager.status();
  EXPECT_THAT(TokensOf(eager->ladder->buckets()), ElementsAre(64));
  EXPECT_THAT(observer_.notices(),
              ElementsAre(HasSubstr("cut short at 16"), HasSubstr("maximum runs without a plan"),
                          HasSubstr("cut short at 8")));
}

// SmallOptions has steps of 64 tokens and 4 sequences, so of up to 19 pages of 4 tokens. The fake
// model's longest sequence takes 16 pages; a page takes 4 bytes.
TEST_F(WarmUpTest, TheNumberOfPagesDependsOnFreeMemory) {
  EngineOptions options = SmallOptions();
  // There is enough free memory, so there is the maximum number of usable pages.
  EXPECT_EQ(Run(options)->kv.pages, 4 * 16);
  options.kv.memory_bytes = 30 * 4 + 3;
  const auto prepared = Run(options);
  EXPECT_EQ(prepared->kv.pages, 30);
  EXPECT_TRUE(prepared->kv.keeps_pages);
  options.kv.memory_bytes = 18 * 4;
  const absl::Status status = Run(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("engine.kv.memory_bytes of 72 holds 18 pages of 4 bytes"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the minimum is 19 pages, 76 bytes"));
}

TEST(WarmUp, TakesAQuarterOfLittleFreeMemory) {
  FakeClock clock;
  RecordingObserver observer;
  FakeBackend backend(FakeBackend::Options{.free_memory = 4 * 4 * 25});
  const auto pages = [&](const EngineOptions& options) {
    return WarmUp(FakeModel(FakeConfig()), options, &backend, &clock, &observer)->kv.pages;
  };
  EXPECT_EQ(pages(SmallOptions()), 25);
  FakeBackend least(FakeBackend::Options{.free_memory = 4 * 19});
  EXPECT_EQ(WarmUp(FakeModel(FakeConfig()), SmallOptions(), &least, &clock, &observer)->kv.pages,
            19);
}

TEST(WarmUp, ModelsThatArePreparedTogetherShareTheFreeMemory) {
  FakeClock clock;
  RecordingObserver observer;
  // The weights of the fake model take 1000 bytes.
  const auto pages = [&](int64_t models, int64_t free_bytes) {
    FakeBackend backend(FakeBackend::Options{.free_memory = free_bytes});
    return WarmUp(FakeModel(FakeConfig()), SmallOptions(), &backend, &clock, &observer,
                  {.models = models, .later_weights = (models - 1) * 1000})
        ->kv.pages;
  };
  EXPECT_EQ(pages(1, 2 * 400), 50);
  EXPECT_EQ(pages(2, 2 * 400 + 1000), 25);
  EXPECT_EQ(pages(5, 2 * 400 + 1000), 19) << "the fewest pages that a step and a sequence need";
}

TEST(WarmUp, LowersTheDefaultSizeOfStepsIfTheMemoryIsSmall) {
  FakeClock clock;
  EngineOptions options = SmallOptions();
  options.batch.max_batch_tokens = 0;
  const auto tokens = [&](int64_t free_bytes, int64_t models, Observer* observer) {
    FakeBackend backend(
        FakeBackend::Options{.activation_bytes_per_token = 10, .free_memory = free_bytes});
    const auto prepared = WarmUp(FakeModel(FakeConfig()), options, &backend, &clock, observer,
                                 {.models = models, .later_weights = (models - 1) * 1000});
    EXPECT_TRUE(prepared.ok()) << prepared.status();
    return prepared.ok() ? prepared->limits.max_tokens : 0;
  };
  RecordingObserver unlimited, limited, shared;
  const int32_t most = tokens(1 << 20, 1, &unlimited);
  EXPECT_GT(most, 512);
  EXPECT_THAT(unlimited.notices(), ::testing::IsEmpty());
  EXPECT_EQ(tokens(most * 10, 1, &limited), most / 2);
  EXPECT_THAT(limited.notices(), ElementsAre(HasSubstr("a step has at most ")));
  EXPECT_EQ(tokens(most * 10, 4, &shared), most / 8);
}

// The model would fit with a larger step, but then the other models would have no room.
TEST(WarmUp, TakesTheSmallestStepsIfItsShareIsTooSmall) {
  FakeClock clock;
  RecordingObserver observer;
  EngineOptions options = SmallOptions();
  options.batch.max_batch_tokens = 0;
  FakeBackend backend(FakeBackend::Options{.activation_bytes_per_token = 10, .free_memory = 5'000});
  const auto prepared = WarmUp(FakeModel(FakeConfig()), options, &backend, &clock, &observer,
                               {.models = 5, .later_weights = 4'000});
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_EQ(prepared->limits.max_tokens, 64);
  EXPECT_EQ(prepared->kv.pages, 19);
  FakeBackend full(FakeBackend::Options{.activation_bytes_per_token = 10, .free_memory = 500});
  const absl::Status refused = WarmUp(FakeModel(FakeConfig()), options, &full, &clock, &observer,
                                      {.models = 5, .free_bytes = 100})
                                   .status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("but only 0 are free for models"));
}

// A step of 64 tokens takes 64 * 10 bytes and 19 pages of 4 bytes; one of 32 tokens takes half of
// the activations and 16 pages, for the longest sequence.
TEST(WarmUp, TheErrorOfAModelThatDoesNotFitHasARemedyThatWorks) {
  FakeClock clock;
  RecordingObserver observer;
  EngineOptions options = SmallOptions();
  options.batch.max_batch_tokens = 256;
  const auto status = [&](int64_t free_bytes) {
    FakeBackend backend(
        FakeBackend::Options{.activation_bytes_per_token = 10, .free_memory = free_bytes});
    return WarmUp(FakeModel(FakeConfig()), options, &backend, &clock, &observer).status();
  };
  const std::string text(status(1000).message());
  EXPECT_THAT(text, HasSubstr("only 1000 are free for models. Set engine.batch.max_batch_tokens to "
                              "64 or less"));
  EXPECT_THAT(std::string(status(300).message()), HasSubstr("Serve fewer models"));
  options.batch.max_batch_tokens = 64;
  EXPECT_EQ(status(1000), absl::OkStatus());
}

TEST_F(WarmUpTest, ADraftModelIsPreparedOnADeviceThatRunsStepsAhead) {
  for (const int32_t steps_ahead : {0, 1}) {
    FakeBackend backend({.steps_ahead = steps_ahead});
    const auto model = std::const_pointer_cast<Model>(FakeModel(FakeConfig()));
    model->draft = FakeModel(FakeConfig(), "small");
    model->speculation = {.kind = Speculation::kModel, .draft = "small"};
    const auto prepared = WarmUp(model, SmallOptions(), &backend, &clock_, &observer_);
    ASSERT_TRUE(prepared.ok()) << prepared.status();
    EXPECT_NE(prepared->draft, nullptr);
    EXPECT_EQ(prepared->kv.draft_sequences, 1);
  }
}

TEST_F(WarmUpTest, ADraftModelIsRefusedIfNoPagesAreKept) {
  const auto model = std::const_pointer_cast<Model>(FakeModel(FakeConfig()));
  model->draft = FakeModel(FakeConfig(), "small");
  model->speculation = {.kind = Speculation::kModel, .draft = "small"};
  EngineOptions options = SmallOptions();
  options.batch.policy = PolicyKind::kFifoPacked;
  const absl::Status refused = WarmUp(model, options, &backend_, &clock_, &observer_).status();
  EXPECT_EQ(refused, absl::InvalidArgumentError(
                         "speculation.draft is small, but engine.batch.policy fifo_packed keeps no "
                         "KV pages, so no token can be drafted. Set engine.batch.policy to packed, "
                         "or remove speculation.draft"));
}

TEST_F(WarmUpTest, OnlyCausalModelsWithThePackedPolicyKeepPages) {
  EngineOptions options = SmallOptions();
  options.kv.memory_bytes = 1;  // has no effect
  options.batch.policy = PolicyKind::kFifoPacked;
  EXPECT_FALSE(Run(options)->kv.keeps_pages);
  EXPECT_EQ(Run(options)->kv.pages, 19);
  options = SmallOptions();
  ModelConfig config = FakeConfig();
  config.causal = false;
  FakeClock clock;
  RecordingObserver observer;
  FakeBackend backend;
  EXPECT_FALSE(WarmUp(FakeModel(config), options, &backend, &clock, &observer)->kv.keeps_pages);
}

}  // namespace
}  // namespace sluice
