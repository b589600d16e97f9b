// Tests the choice of a ladder while the engine serves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/engine/runner/models/reviewed_engine.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

std::vector<int32_t> TokensOf(std::span<const Bucket> buckets) {
  std::vector<int32_t> tokens;
  for (const Bucket& bucket : buckets) tokens.push_back(bucket.tokens);
  return tokens;
}

// Serves `count` requests of random lengths, and checks that each has the same answer as by itself.
void ServeRandomly(ReviewedEngine* served, uint64_t seed, int count) {
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < count; ++i) {
    std::vector<int32_t> prompt(1 + random() % 40);
    for (int32_t& token : prompt) token = static_cast<int32_t>(random() % 90);
    const int32_t tokens = 1 + static_cast<int32_t>(random() % 8);
    const auto sink = std::make_shared<RecordingSink>();
    ASSERT_TRUE(served->engine
                    ->Submit(RequestOf(served->model, {prompt}, tokens), sink, served->clock.Now())
                    .ok());
    sink->AwaitDone();
    ASSERT_TRUE(sink->status().ok()) << sink->status();
    ASSERT_EQ(sink->row_tokens(0), Greedy(prompt, tokens));
  }
}

const LadderChoice kChoices[] = {{{"strategy", "geometric"}, {"ratio", "2"}},
                                 {{"strategy", "fixed"}, {"fixed_tokens", "3,17,40"}},
                                 {{"strategy", "memory_optimal"}, {"max_buckets", "3"}},
                                 {{"strategy", "hardware_aware"}},
                                 {{"strategy", "adaptive"}, {"min_bucket_usage", "0.1"}},
                                 {{"strategy", "fixed"}, {"fixed_tokens", "64"}},
                                 {}};

class LadderChoicePolicyTest : public ::testing::TestWithParam<PolicyKind> {};

TEST_P(LadderChoicePolicyTest, ChoosingLaddersDoesNotAffectRequests) {
  EngineOptions options = AdaptiveOptions();
  options.batch.policy = GetParam();
  ReviewedEngine served(options);
  std::vector<std::thread> callers;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    callers.emplace_back([&served, seed] { ServeRandomly(&served, seed, 150); });
  }
  for (int round = 0; round < 8; ++round) {
    for (const LadderChoice& choice : kChoices) {
      const absl::StatusOr<ReviewReport> report =
          served.engine->ChooseLadder("fake", "", choice, /*keep=*/false);
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_THAT(report->after, ::testing::Not(::testing::IsEmpty()));
    }
  }
  for (std::thread& caller : callers) caller.join();
}

INSTANTIATE_TEST_SUITE_P(Policies, LadderChoicePolicyTest,
                         ::testing::Values(PolicyKind::kPacked, PolicyKind::kFifoPacked,
                                           PolicyKind::kPaddedBuckets),
                         [](const auto& policy) { return std::string(NameOf(policy.param)); });

TEST(LadderChoice, TakesEffectImmediatelyAndUntilTheNextChoice) {
  ReviewedEngine served(AdaptiveOptions());
  const absl::StatusOr<ReviewReport> report =
      served.engine->ChooseLadder("fake", "", {{"strategy", "geometric"}, {"ratio", "2"}}, false);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(TokensOf(report->after), ::testing::ElementsAre(8, 16, 32, 64));
  ModelStats stats = served.engine->Stats()[0];
  EXPECT_EQ(stats.ladder_options.strategy, StrategyKind::kGeometric);
  EXPECT_EQ(stats.ladder_options.min_tokens, 8) << "as configured";
  served.Serve(37, 400);
  EXPECT_EQ(served.observer.batches().back().bucket.tokens, 64);
  EXPECT_FALSE(served.engine->Review("fake", "", true)->changed)
      << "the ladder is no longer adaptive";
  ASSERT_TRUE(served.engine->ChooseLadder("fake", "", {}, false).ok());
  stats = served.engine->Stats()[0];
  EXPECT_EQ(stats.ladder_options.strategy, StrategyKind::kAdaptive);
  EXPECT_TRUE(served.HasBucket(37)) << "an adaptive ladder is fitted at once";
}

TEST_P(LadderChoicePolicyTest, RespectsTheMemoryLimitAndCountsTheExcludedBuckets) {
  EngineOptions options = AdaptiveOptions();
  options.batch.policy = GetParam();
  ReviewedEngine unlimited(options);
  const LadderChoice dense = {{"strategy", "geometric"}, {"ratio", "1.1"}, {"min_tokens", "1"}};
  const absl::StatusOr<ReviewReport> whole =
      unlimited.engine->ChooseLadder("fake", "", dense, false);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(unlimited.engine->Stats()[0].ladder_changes.evicted, 0);
  options.ladder.memory_limit_bytes = unlimited.engine->Stats()[0].plan_memory_bytes * 3 / 4;
  ReviewedEngine served(options);
  const int64_t at_start = served.engine->Stats()[0].ladder_changes.evicted;
  const absl::StatusOr<ReviewReport> limited =
      served.engine->ChooseLadder("fake", "", dense, false);
  ASSERT_TRUE(limited.ok()) << limited.status();
  const ModelStats stats = served.engine->Stats()[0];
  EXPECT_LE(stats.plan_memory_bytes, options.ladder.memory_limit_bytes);
  EXPECT_EQ(stats.ladder_changes.evicted - at_start,
            std::ssize(whole->after) - std::ssize(limited->after));
  EXPECT_GT(stats.ladder_changes.evicted, at_start);
  served.Serve(37, 10);
}

TEST(LadderChoice, SetsTheMemoryLimitOfOneModel) {
  ReviewedEngine served(AdaptiveOptions());
  EXPECT_EQ(served.engine->Stats()[0].memory_limit_effect, "");
  const LadderChoice dense = {{"strategy", "geometric"}, {"ratio", "1.1"}, {"min_tokens", "1"}};
  ASSERT_TRUE(served.engine->ChooseLadder("fake", "", dense, false).ok());
  const int64_t limit = served.engine->Stats()[0].plan_memory_bytes * 3 / 4;
  LadderChoice limited = dense;
  limited["memory_limit_bytes"] = absl::StrCat(limit);
  ASSERT_TRUE(served.engine->ChooseLadder("fake", "", limited, false).ok());
  ModelStats stats = served.engine->Stats()[0];
  EXPECT_EQ(stats.ladder_options.memory_limit_bytes, limit);
  EXPECT_LE(stats.plan_memory_bytes, limit);
  limited["memory_limit_bytes"] = "1";
  const absl::StatusOr<ReviewReport> report =
      served.engine->ChooseLadder("fake", "", limited, false);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->after.size(), 1u) << "only the largest bucket is left";
  EXPECT_THAT(report->reason, ::testing::HasSubstr("cannot be met"));
  EXPECT_THAT(served.engine->Stats()[0].memory_limit_effect, ::testing::HasSubstr("cannot be met"));
  ASSERT_TRUE(served.engine->ChooseLadder("fake", "", {}, false).ok());
  EXPECT_EQ(served.engine->Stats()[0].memory_limit_effect, "");
}

TEST(LadderChoice, ChangesNothingIfAPlanCannotBePrepared) {
  ReviewedEngine served(AdaptiveOptions());
  served.backend.OnPrepare([](const Bucket&) { return absl::ResourceExhaustedError("memory"); });
  EXPECT_EQ(served.engine->ChooseLadder("fake", "", {{"strategy", "memory_optimal"}}, false)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(served.engine->Stats()[0].ladder_options.strategy, StrategyKind::kAdaptive);
  served.Serve(37, 3);
}

TEST(LadderChoice, ErrorsNameTheOption) {
  ReviewedEngine served(AdaptiveOptions());
  const auto error = [&](const LadderChoice& choice, bool keep = false) {
    const absl::Status status = served.engine->ChooseLadder("fake", "", choice, keep).status();
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  };
  EXPECT_THAT(error({{"ratio", "1"}}), HasSubstr("ratio: expected a number in (1, 16]"));
  EXPECT_THAT(error({{"strategy", "best"}}), HasSubstr("strategy: expected one of"));
  EXPECT_THAT(error({{"file", "x"}}), HasSubstr("\"file\" cannot be chosen"));
  EXPECT_THAT(error({{"strategy", "fixed"}, {"fixed_tokens", "65"}}), HasSubstr("fixed_tokens"));
  EXPECT_THAT(error({{"cap_tokens", "4"}}), HasSubstr("cap_tokens is 4"));
  EXPECT_THAT(error({{"strategy", "geometric"}}, /*keep=*/true),
              HasSubstr("engine.ladder.file is empty"));
}

class LadderKeptTest : public ::testing::Test {
 protected:
  LadderKeptTest() {
    std::remove(path_.c_str());
    options_.ladder.file = path_;
  }

  // Returns the options in effect after a restart.
  LadderOptions AfterRestart() const {
    return ReviewedEngine(options_).engine->Stats()[0].ladder_options;
  }

  void Choose(const LadderChoice& choice, bool keep) const {
    ReviewedEngine served(options_);
    const absl::Status chosen = served.engine->ChooseLadder("fake", "", choice, keep).status();
    EXPECT_TRUE(chosen.ok()) << chosen;
  }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "/ladder_choice_test_kept");
  EngineOptions options_ = AdaptiveOptions();
};

TEST_F(LadderKeptTest, IsUsedAfterARestartOnlyIfItIsKept) {
  Choose({{"strategy", "geometric"}, {"ratio", "2"}}, /*keep=*/false);
  EXPECT_EQ(AfterRestart().strategy, StrategyKind::kAdaptive);
  Choose({{"strategy", "geometric"}, {"ratio", "2"}}, /*keep=*/true);
  EXPECT_EQ(AfterRestart().strategy, StrategyKind::kGeometric);
  EXPECT_EQ(AfterRestart().ratio, 2) << "a restart keeps it for the next";
  Choose({{"strategy", "memory_optimal"}}, /*keep=*/false);
  EXPECT_EQ(AfterRestart().strategy, StrategyKind::kGeometric) << "the kept one";
  Choose({}, /*keep=*/true);
  EXPECT_EQ(AfterRestart().strategy, StrategyKind::kAdaptive);
}

TEST_F(LadderKeptTest, IsUsedAfterTheModelIsLoadedAgain) {
  const LadderChoice choice = {{"strategy", "geometric"}, {"ratio", "2"}};
  {
    ReviewedEngine served(options_);
    ASSERT_TRUE(served.engine->ChooseLadder("fake", "", choice, /*keep=*/true).ok());
    ASSERT_TRUE(served.engine->Serve(FakeModel(FakeConfig())).ok());
    EXPECT_EQ(served.engine->Stats()[0].ladder_kept, choice);
    EXPECT_EQ(served.engine->Stats()[0].ladder_options.ratio, 2);
    ASSERT_TRUE(
        served.engine->ChooseLadder("fake", "", {{"strategy", "geometric"}, {"ratio", "3"}}, true)
            .ok());
  }
  EXPECT_EQ(AfterRestart().ratio, 3) << "the replaced model did not write the file at its end";
}

TEST(LadderChoice, AModelKeepsItsFileIfOthersAreNotLoadedAfterARestart) {
  const TemporaryDirectory directory;
  EngineOptions options = AdaptiveOptions();
  options.ladder.file = directory.File("ladder");
  const auto ratio = [](int i) {
    return LadderChoice{{"strategy", "geometric"}, {"ratio", absl::StrCat(i + 2)}};
  };
  // Serves the models one after another. Returns the choices that their files keep.
  const auto serve = [&](const std::vector<std::string>& names, bool choose) {
    FakeClock clock;
    RecordingObserver observer;
    FakeBackend backend;
    const auto engine = Engine::Create(options, &backend, &clock, &observer);
    std::vector<LadderChoice> kept;
    for (size_t i = 0; i < names.size(); ++i) {
      EXPECT_TRUE(engine->Serve(FakeModel(FakeConfig(), names[i])).ok());
      if (choose) {
        EXPECT_TRUE(engine->ChooseLadder(names[i], "", ratio(static_cast<int>(i)), true).ok());
      }
      kept.push_back(engine->Stats()[i].ladder_kept);
    }
    return kept;
  };
  serve({"a", "b", "c"}, /*choose=*/true);
  EXPECT_THAT(serve({"c"}, false), ::testing::ElementsAre(ratio(2)));
  EXPECT_THAT(serve({"b", "d"}, false), ::testing::ElementsAre(ratio(1), LadderChoice()));
  EXPECT_THAT(serve({"b", "a", "c"}, false), ::testing::ElementsAre(ratio(1), ratio(0), ratio(2)));
  std::filesystem::remove(options.ladder.file);
  EXPECT_THAT(serve({"b", "a"}, false), ::testing::ElementsAre(ratio(1), LadderChoice()))
      << "also if a file before it is missing";
}

TEST_F(LadderKeptTest, IsRefusedWhileTheModelIsLoadedAgain) {
  ReviewedEngine served(options_);
  const LadderChoice choice = {{"strategy", "geometric"}, {"ratio", "2"}};
  absl::Status during;
  bool choosing = false;  // the choice prepares plans, too
  served.backend.OnPrepare([&](const Bucket&) {
    if (choosing) return absl::OkStatus();
    choosing = true;
    during = served.engine->ChooseLadder("fake", "", choice, /*keep=*/true).status();
    choosing = false;
    return absl::DataLossError("the load fails");
  });
  EXPECT_EQ(served.engine->Serve(FakeModel(FakeConfig())).code(), absl::StatusCode::kDataLoss);
  served.backend.OnPrepare([](const Bucket&) { return absl::OkStatus(); });
  EXPECT_THAT(std::string(during.message()), HasSubstr("the model is being loaded again"));
  EXPECT_THAT(served.engine->Stats()[0].ladder_kept, ::testing::IsEmpty());
  EXPECT_TRUE(served.engine->ChooseLadder("fake", "", choice, /*keep=*/true).ok())
      << "after a load that failed, the served model writes its file again";
}

TEST_F(LadderKeptTest, AChoiceThatCannotBeWrittenIsAnErrorAndIsNeverKept) {
  const TemporaryDirectory directory;
  const std::string folder = directory.File("folder"), moved = directory.File("moved");
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  options_.ladder.file = absl::StrCat(folder, "/ladder");
  Choose({{"strategy", "geometric"}, {"ratio", "2"}}, /*keep=*/true);
  {
    ReviewedEngine served(options_);
    std::filesystem::rename(folder, moved);
    const LadderChoice choice = {{"strategy", "geometric"}, {"ratio", "3"}};
    const absl::Status chosen = served.engine->ChooseLadder("fake", "", choice, true).status();
    EXPECT_THAT(
        std::string(chosen.message()),
        ::testing::AllOf(HasSubstr("the ladder is changed"), HasSubstr("not kept"),
                         HasSubstr(options_.ladder.file), HasSubstr("No such file or directory")));
    EXPECT_EQ(served.engine->Stats()[0].ladder_options.ratio, 3);
    EXPECT_EQ(served.engine->Stats()[0].ladder_kept.at("ratio"), "2");
    // Without `keep` the caller does not depend on the file.
    EXPECT_TRUE(served.engine->ChooseLadder("fake", "", choice, false).ok());
    EXPECT_EQ(served.observer.failed_writes(WrittenFile::kLadder), 2);
    std::filesystem::rename(moved, folder);
  }  // The end of the engine writes the file.
  EXPECT_EQ(AfterRestart().ratio, 2);
}

TEST_F(LadderKeptTest, IsIgnoredIfTheConfigurationNoLongerAllowsIt) {
  Choose({{"strategy", "geometric"}, {"cap_tokens", "16"}}, /*keep=*/true);
  options_.ladder.min_tokens = 32;
  ReviewedEngine served(options_);
  EXPECT_EQ(served.engine->Stats()[0].ladder_options.strategy, StrategyKind::kAdaptive);
  ASSERT_FALSE(served.observer.notices().empty());
  EXPECT_THAT(served.observer.notices()[0], HasSubstr("cap_tokens is 16"));
}

TEST(LadderChoice, AModelMayHaveItsOwnConfiguredChoice) {
  FakeClock clock;
  RecordingObserver observer;
  FakeBackend backend;
  const auto engine = Engine::Create(AdaptiveOptions(), &backend, &clock, &observer);
  const auto model = FakeModel(FakeConfig());
  ModelChange change{.serve = {model}, .withdraw = {}};
  change.ladders[model.get()] = {{"strategy", "fixed"}, {"fixed_tokens", "20"}};
  ASSERT_TRUE(engine->Exchange(change).ok());
  std::vector<Bucket> buckets;
  const ModelStats stats = engine->Stats()[0];
  for (const BucketStats& bucket : stats.buckets) buckets.push_back(bucket.bucket);
  EXPECT_THAT(TokensOf(buckets), ::testing::ElementsAre(20, 64));
  change.ladders[model.get()] = {{"strategy", "fixed"}, {"fixed_tokens", "65"}};
  EXPECT_THAT(engine->Exchange(change).message(), HasSubstr("fixed_tokens has 65"));
}

}  // namespace
}  // namespace sluice
