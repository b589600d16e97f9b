// Tests, on a fake device, steps that are started before the tokens of the previous step are known:
// every request has the same answer as with one step at a time.
#include <chrono>
#include <memory>
#include <random>

#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"
#include "tests/support/random_requests.h"

namespace sluice {
namespace {

constexpr int kRequests = 60;

struct Answers {
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  int started_ahead = 0;
  int without_memory = 0;  // steps
};

// Answers the requests of `seed`. Every seventh step of several sequences has no memory.
Answers AnswersOf(uint64_t seed, int32_t steps_ahead, EngineOptions options) {
  ModelConfig config = FakeConfig();
  config.max_positions = 40;
  Harness harness(options, config, {.free_memory = 1600, .steps_ahead = steps_ahead});
  Answers answers;
  int steps = 0;
  harness.backend.OnReplay([&](const RecordedBatch& batch) {
    if (batch.sequences.size() < 2 || ++steps % 7 != 0) return absl::OkStatus();
    ++answers.without_memory;
    return absl::ResourceExhaustedError("no memory");
  });
  std::mt19937_64 random(seed);
  const RequestMix mix = {.most_length = 12, .most_tokens = 12, .stops = true, .edits = true};
  for (int i = 0; i < kRequests; ++i) {
    answers.sinks.push_back(
        SubmitTo(harness.engine.get(), RandomRequest(harness.model, random, mix)));
    if (random() % 4 == 0) answers.sinks.back()->AwaitDone();
  }
  harness.engine->Drain(MonoTime::max());
  EXPECT_EQ(harness.engine->Stats()[0].kv.held, 0);
  answers.started_ahead = harness.backend.started_ahead();
  return answers;
}

TEST(DecodeAhead, AnswersEqualThoseWithoutStepsAhead) {
  int started_ahead = 0, without_memory = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    EngineOptions options = SmallOptions();
    options.batch.max_batch_sequences = 1 + static_cast<int32_t>(seed % 6);
    options.batch.policy = seed % 3 == 0 ? PolicyKind::kFifoPacked : PolicyKind::kPacked;
    const Answers one = AnswersOf(seed, 0, options), ahead = AnswersOf(seed, 1, options);
    EXPECT_EQ(one.started_ahead, 0);
    started_ahead += ahead.started_ahead;
    without_memory += ahead.without_memory;
    for (int i = 0; i < kRequests; ++i) {
      SCOPED_TRACE(i);
      ExpectSameAnswer(*one.sinks[i], *ahead.sinks[i]);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(started_ahead, 30 * kRequests);
  EXPECT_GT(without_memory, 100);
}

struct DraftedAnswers {
  Answers answers;
  DraftStats drafts;
};

// Answers the requests of `seed` on a device where each step takes a millisecond, so that drafted
// tokens cost nothing. With `predicted`, the answers of an earlier run, most of its tokens are
// predicted.
DraftedAnswers AnswersWithDrafts(uint64_t seed, const EngineOptions& options,
                                 const Answers* predicted) {
  ModelConfig config = FakeConfig();
  config.max_positions = 40;
  const auto model = std::const_pointer_cast<Model>(FakeModel(config));
  model->speculation = {.tokens = 4, .sequences = 3};
  FakeBackend backend({.free_memory = 1600, .steps_ahead = 1});
  FakeClock clock;
  RecordingObserver observer;
  const auto engine = Engine::Create(options, &backend, &clock, &observer);
  EXPECT_TRUE(engine->Serve(model).ok());
  DraftedAnswers result;
  int steps = 0;
  backend.OnReplay([&](const RecordedBatch& batch) {
    clock.Advance(std::chrono::milliseconds(1));
    if (batch.sequences.size() < 2 || ++steps % 7 != 0) return absl::OkStatus();
    ++result.answers.without_memory;
    return absl::ResourceExhaustedError("no memory");
  });
  std::mt19937_64 random(seed), errors(seed);
  const RequestMix mix = {.most_length = 12, .most_tokens = 20, .stops = true, .edits = true};
  for (int i = 0; i < kRequests; ++i) {
    Request request = RandomRequest(model, random, mix);
    request.outputs &= ~kOutputDiagnostics;  // such requests have no drafts
    RequestSpec& spec = Mutable(request.spec);
    spec.speculation = predicted != nullptr;
    if (predicted != nullptr) spec.predicted = predicted->sinks[i]->row_tokens(0);
    for (int32_t& token : spec.predicted) token = errors() % 8 == 0 ? 0 : token;
    result.answers.sinks.push_back(SubmitTo(engine.get(), request));
    if (random() % 2 == 0) result.answers.sinks.back()->AwaitDone();
  }
  engine->Drain(MonoTime::max());
  const ModelStats stats = engine->Stats()[0];
  EXPECT_EQ(stats.kv.held, 0);
  result.drafts = stats.kv.drafts[static_cast<int>(DraftKind::kPrediction)];
  result.answers.started_ahead = backend.started_ahead();
  return result;
}

TEST(DecodeAhead, DraftsDoNotChangeAnswers) {
  DraftStats drafts{};
  int64_t started_ahead = 0, without_memory = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    EngineOptions options = SmallOptions();
    options.batch.max_batch_sequences = 1 + static_cast<int32_t>(seed % 6);
    const DraftedAnswers plain = AnswersWithDrafts(seed, options, nullptr);
    EXPECT_EQ(plain.drafts.drafted, 0);
    const DraftedAnswers drafted = AnswersWithDrafts(seed, options, &plain.answers);
    drafts.drafted += drafted.drafts.drafted;
    drafts.accepted += drafted.drafts.accepted;
    started_ahead += drafted.answers.started_ahead;
    without_memory += drafted.answers.without_memory;
    for (int i = 0; i < kRequests; ++i) {
      SCOPED_TRACE(i);
      ExpectSameAnswer(*plain.answers.sinks[i], *drafted.answers.sinks[i]);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(drafts.accepted, 1000);
  EXPECT_GT(drafts.drafted - drafts.accepted, 1000);
  EXPECT_GT(started_ahead, 1000);
  EXPECT_GT(without_memory, 100);
}

}  // namespace
}  // namespace sluice
