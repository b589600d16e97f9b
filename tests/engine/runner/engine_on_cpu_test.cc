// Runs the engine on the CPU backend: a request gets the same bits by itself and in any batch.
#include <algorithm>
#include <random>

#include "engine/cpu/cpu_backend.h"
#include "engine/engine.h"
#include "gtest/gtest.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/padded_layouts.h"
#include "tests/support/random_requests.h"
#include "tests/support/recording_observer.h"
#include "tests/support/shared_prefix.h"

namespace sluice {
namespace {

constexpr int kRequests = 40;

TEST(EngineOnCpu, TheBitsOfARequestDoNotDependOnItsBatch) {
  const auto backend = MakeCpuBackend({.threads = 2, .poison = true});
  ASSERT_TRUE(backend.ok()) << backend.status();
  const auto model = LoadModel("golden", 1, SLUICE_SOURCE_DIR "/tests/goldens/sluice_all");
  ASSERT_TRUE(model.ok()) << model.status();
  RecordingObserver observer_alone, observer_together;
  EngineOptions options;
  options.batch.max_batch_tokens = 200;
  const auto one_by_one = Engine::Create(options, backend->get(), Clock::Real(), &observer_alone);
  ASSERT_TRUE(one_by_one->Serve(*model).ok());
  options.batch.policy = PolicyKind::kFifoPacked;
  options.batch.max_queue_delay_us = 3'600'000'000;  // batches are full until the drain
  const auto in_company =
      Engine::Create(options, backend->get(), Clock::Real(), &observer_together);
  ASSERT_TRUE(in_company->Serve(*model).ok());

  constexpr uint64_t kSeed = 20240611;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  std::vector<std::shared_ptr<RecordingSink>> alone, together;
  for (int i = 0; i < kRequests; ++i) {
    Request request = RandomRequest(*model, random);
    if (i % 3 == 0) Mutable(request.spec).diversity = 0.5f;
    together.push_back(SubmitTo(in_company.get(), request));
    alone.push_back(SubmitTo(one_by_one.get(), request));
    alone.back()->AwaitDone();
  }
  in_company->Drain(MonoTime::max());
  EXPECT_LT(observer_together.batches().size(), observer_alone.batches().size() / 2);
  for (size_t i = 0; i < kRequests; ++i) {
    SCOPED_TRACE(i);
    ExpectSameAnswer(*alone[i], *together[i]);
    if (HasFatalFailure()) return;
  }
}

class Served {
 public:
  Served(const EngineOptions& options, Backend* backend, const std::shared_ptr<const Model>& model)
      : engine(Engine::Create(options, backend, Clock::Real(), &observer)) {
    const absl::Status status = engine->Serve(model);
    EXPECT_TRUE(status.ok()) << status;
  }

  std::shared_ptr<RecordingSink> Submit(const Request& request) {
    return SubmitTo(engine.get(), request);
  }

  RecordingObserver observer;
  std::unique_ptr<Engine> engine;
};

int32_t MostSequences(int threads, int32_t configured) {
  const auto backend = MakeCpuBackend({.threads = threads});
  EngineOptions options;
  options.batch.max_batch_sequences = configured;
  RecordingObserver observer;
  const auto engine = Engine::Create(options, backend->get(), Clock::Real(), &observer);
  const auto model = testing::RandomModel(testing::TinySluiceConfig(2), 3);
  EXPECT_TRUE(engine->Serve(model).ok());
  return engine->Stats().front().buckets.back().bucket.sequences;
}

TEST(EngineOnCpu, TheDefaultNumberOfSequencesDependsOnTheProcessors) {
  EXPECT_EQ(MostSequences(1, 0), 64);
  EXPECT_EQ(MostSequences(2, 0), 64);
  EXPECT_EQ(MostSequences(3, 0), 96);
  EXPECT_EQ(MostSequences(9, 0), 256);
  EXPECT_EQ(MostSequences(2, 65), 65);
}

// The whole rectangle is computed; no output bit changes.
TEST(EngineOnCpu, PaddedLayoutsGiveTheBitsOfThePackedOne) {
  const auto backend = MakeCpuBackend({.threads = 2, .poison = true});
  ASSERT_TRUE(backend.ok()) << backend.status();
  const auto model = LoadModel("golden", 1, SLUICE_SOURCE_DIR "/tests/goldens/sluice_all");
  ASSERT_TRUE(model.ok()) << model.status();
  EngineOptions options;
  options.batch.max_batch_tokens = 200;
  options.batch.max_batch_sequences = 8;
  ExpectPaddedGivesPackedBits(
      backend->get(), *model, options,
      [&](std::mt19937_64& random) { return RandomRequest(*model, random); }, 12);
}

TEST(EngineOnCpu, PaddedLayoutsOfAttentionInBothDirectionsGiveTheBitsOfThePackedOne) {
  const auto backend = MakeCpuBackend({.threads = 2, .poison = true});
  ASSERT_TRUE(backend.ok()) << backend.status();
  ModelConfig config = testing::TinySluiceConfig(2);
  config.causal = false;
  config.max_positions = 48;
  const auto model = testing::RandomModel(config, 21);
  ASSERT_FALSE(model->config.causal);
  EngineOptions options;
  options.batch.max_batch_tokens = 200;
  options.batch.max_batch_sequences = 8;
  ExpectPaddedGivesPackedBits(
      backend->get(), model, options,
      [&](std::mt19937_64& random) { return RandomEmbedding(model, random); }, 30);
}

// The model is causal, so its rows could share pages.
TEST(EngineOnCpu, RowsWithDifferentTypesShareNoPages) {
  const auto backend = MakeCpuBackend({.threads = 2, .poison = true});
  ASSERT_TRUE(backend.ok()) << backend.status();
  ModelConfig config = testing::TinySluiceConfig(2);
  config.token_types = 2;
  config.max_positions = 64;
  const auto model = testing::RandomModel(config, 8);
  Served served({}, backend->get(), model);
  Request untyped;
  RequestSpec& spec = Mutable(untyped.spec);
  spec.model = model;
  spec.lengths = {60};
  spec.max_tokens = 0;
  for (int32_t i = 0; i < 60; ++i) untyped.tokens.push_back(i % 7);
  untyped.outputs = kOutputEmbedding;
  Request typed = untyped, likewise = untyped;
  typed.types.assign(60, 0);
  typed.types[3] = 1;
  likewise.types = typed.types;
  likewise.types[50] = 1;
  std::vector<std::vector<float>> answers;
  for (const Request* request : {&untyped, &typed, &likewise, &untyped, &typed}) {
    const auto sink = served.Submit(*request);
    sink->AwaitDone();
    ASSERT_TRUE(sink->status().ok()) << sink->status();
    answers.push_back(sink->reply().embedding);
    EXPECT_EQ(sink->trace().reused_tokens > 0, answers.size() == 4);
  }
  EXPECT_EQ(answers[0], answers[3]);
  EXPECT_EQ(answers[1], answers[4]);
  EXPECT_NE(answers[0], answers[1]);
  EXPECT_NE(answers[1], answers[2]);
}

TEST(EngineOnCpu, RequestsOfAHundredLengthsPrepareNoPlans) {
  const auto backend = MakeCpuBackend({.threads = 2});
  ASSERT_TRUE(backend.ok()) << backend.status();
  ModelConfig config = testing::TinyConfig(1);
  config.max_positions = 100;
  const auto model = testing::RandomModel(config, 6);
  EngineOptions options;
  options.batch.max_batch_tokens = 200;
  options.ladder.review.interval_us = 0;
  Served served(options, backend->get(), model);
  const size_t plans = served.observer.plans().size();
  for (int32_t length = 1; length <= 100; ++length) {
    Request request;
    Mutable(request.spec).model = model;
    Mutable(request.spec).lengths = {length};
    request.tokens.assign(static_cast<size_t>(length), 1);
    const auto sink = served.Submit(request);
    sink->AwaitDone();
    ASSERT_TRUE(sink->status().ok()) << sink->status();
  }
  EXPECT_EQ(served.observer.plans().size(), plans);
  for (const BatchTrace& batch : served.observer.batches()) {
    EXPECT_EQ(batch.lookup, Lookup::kHit);
  }
}

// The parameter is the number of tokens that the rows share, whole pages or not.
class SharedPrefixTest : public ::testing::TestWithParam<int32_t> {};

TEST_P(SharedPrefixTest, ComputesTheSharedPrefixOnceWithTheSameBits) {
  const auto backend = MakeCpuBackend({.threads = 2, .poison = true});
  ASSERT_TRUE(backend.ok()) << backend.status();
  ModelConfig config = testing::TinySluiceConfig(2);
  config.max_positions = 256;
  ExpectSharedPrefixIsComputedOnce(backend->get(), testing::RandomModel(config, 8), {},
                                   {.prefix = GetParam(), .items = 30});
}

INSTANTIATE_TEST_SUITE_P(Prefixes, SharedPrefixTest, ::testing::Values(64, 100, 111));

}  // namespace
}  // namespace sluice
