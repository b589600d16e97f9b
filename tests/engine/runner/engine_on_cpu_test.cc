// Runs the engine on the CPU backend: a request gets the same bits alone and in any batch.
#include <algorithm>
#include <random>

#include "engine/cpu/cpu_backend.h"
#include "engine/engine.h"
#include "gtest/gtest.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/padded_layouts.h"
#include "tests/support/random_requests.h"
#include "tests/support/recording_observer.h"

namespace sluice {
namespace {

constexpr int kRequests = 40;

TEST(EngineOnCpu, ARequestsBitsDoNotDependOnItsBatch) {
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
  options.batch.max_queue_delay_us = 10'000'000;  // batches are full until the drain
  const auto in_company =
      Engine::Create(options, backend->get(), Clock::Real(), &observer_together);
  ASSERT_TRUE(in_company->Serve(*model).ok());

  constexpr uint64_t kSeed = 20240611;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  std::vector<std::shared_ptr<RecordingSink>> alone, together;
  for (int i = 0; i < kRequests; ++i) {
    const Request request = RandomRequest(*model, random);
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

// The whole rectangle is computed, without an effect on any bit of any output.
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

// The model is causal, so that its rows could share pages.
TEST(EngineOnCpu, RowsOfOtherTypesShareNothing) {
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

// The parameter is the number of tokens that the rows share.
class SharedPrefixTest : public ::testing::TestWithParam<int32_t> {};

TEST_P(SharedPrefixTest, TheBeginningOfTheRowsIsComputedOnceAndNoBitChanges) {
  constexpr int32_t kItems = 30, kPage = 16;
  const int32_t prefix = GetParam();
  const auto backend = MakeCpuBackend({.threads = 2, .poison = true});
  ASSERT_TRUE(backend.ok()) << backend.status();
  ModelConfig config = testing::TinySluiceConfig(2);
  config.max_positions = 256;
  const auto model = testing::RandomModel(config, 8);
  Served together({}, backend->get(), model);
  EngineOptions without;
  without.kv.prefix_reuse = false;
  Served apart(without, backend->get(), model);

  constexpr uint64_t kSeed = 20261124;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  const auto draw = [&] { return static_cast<int32_t>(random() % config.vocab_size); };
  std::vector<int32_t> tokens(prefix);
  std::ranges::generate(tokens, draw);
  Request all;
  RequestSpec& spec = Mutable(all.spec);
  spec.model = model;
  all.outputs = kOutputTokens | kOutputEmbedding | kOutputCandidates;
  all.candidates.begin = {0};
  int64_t expected = prefix - prefix % kPage;
  for (int32_t i = 0; i < kItems; ++i) {
    std::vector<int32_t> row = tokens;
    for (uint64_t more = 1 + random() % 7; more > 0; --more) row.push_back(draw());
    expected += std::ssize(row) - (prefix - prefix % kPage);
    spec.lengths.push_back(static_cast<int32_t>(row.size()));
    all.tokens.insert(all.tokens.end(), row.begin(), row.end());
    all.candidates.tokens.push_back(draw());
    all.candidates.begin.push_back(i + 1);
  }
  const auto scored = together.Submit(all);
  scored->AwaitDone();
  ASSERT_TRUE(scored->status().ok()) << scored->status();
  int64_t computed = 0;
  for (const BatchTrace& batch : together.observer.batches()) computed += batch.useful_tokens;
  EXPECT_EQ(computed, expected);

  const Reply answer = scored->reply();
  const int64_t width = config.embedding_size();
  int64_t begin = 0;
  for (int32_t i = 0; i < kItems; ++i) {
    Request one = all;
    Mutable(one.spec).lengths = {all.spec->lengths[i]};
    const int32_t length = all.spec->lengths[i];
    one.tokens.assign(all.tokens.begin() + begin, all.tokens.begin() + begin + length);
    one.candidates = {.tokens = {all.candidates.tokens[i]}, .begin = {0, 1}};
    begin += length;
    const auto sink = apart.Submit(one);
    sink->AwaitDone();
    ASSERT_TRUE(sink->status().ok()) << sink->status();
    const Reply alone = sink->reply();
    EXPECT_EQ(alone.candidate_scores[0], answer.candidate_scores[i]) << i;
    EXPECT_TRUE(std::equal(alone.embedding.begin(), alone.embedding.end(),
                           answer.embedding.begin() + i * width))
        << i;
    EXPECT_EQ(sink->trace().reused_tokens, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Prefixes, SharedPrefixTest, ::testing::Values(64, 100));

}  // namespace
}  // namespace sluice
