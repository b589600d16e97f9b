// Tests the results of requests: scores, tokens, candidates, and the end of generation.
#include <atomic>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"
#include "tests/support/gate.h"
#include "tests/support/request_spec.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

TEST(Generation, ScoresThePromptAndDrawsOneToken) {
  Harness harness;
  Request request = harness.MakeRequest({{1, 2, 3}, {4, 5}});
  request.outputs = kOutputTokens | kOutputPromptLogprobs;
  const auto sink = harness.Submit(request);
  sink->AwaitDone();
  ASSERT_TRUE(sink->status().ok()) << sink->status();
  EXPECT_EQ(sink->row_tokens(0), Greedy({1, 2, 3}, 1));
  EXPECT_EQ(sink->row_tokens(1), Greedy({4, 5}, 1));
  EXPECT_EQ(sink->reply().prompt_logprobs.size(), 5u);
  EXPECT_THAT(sink->reply().finish, ElementsAre(FinishReason::kLength, FinishReason::kLength));
}

TEST(Generation, AScoringRequestTakesOneStepUnlessNothingIsComputed) {
  Harness harness;
  for (const uint32_t outputs : {0u, uint32_t{kOutputTokens}, uint32_t{kOutputLogits}}) {
    SCOPED_TRACE(outputs);
    Request request = harness.MakeRequest({{1, 2, 3}}, /*max_tokens=*/0);
    request.outputs = outputs;
    const auto sink = harness.Submit(request);
    sink->AwaitDone();
    EXPECT_TRUE(sink->status().ok());
    EXPECT_TRUE(sink->tokens().empty());
    EXPECT_EQ(sink->trace().steps, outputs == 0 ? 0 : 1);
    EXPECT_THAT(sink->reply().finish, ElementsAre(FinishReason::kNone));
    EXPECT_EQ(sink->reply().logits.size(), outputs == kOutputLogits ? 97u : 0u);
  }
}

TEST(Generation, GeneratesTheSameTokensAsOneTokenRequests) {
  Harness harness;
  const std::vector<std::vector<int32_t>> prompts = {{1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10}};
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (const auto& prompt : prompts) {
    sinks.push_back(harness.Submit(harness.MakeRequest({prompt, {42}}, /*max_tokens=*/9)));
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    sinks[i]->AwaitDone();
    EXPECT_EQ(sinks[i]->row_tokens(0), Greedy(prompts[i], 9));
    EXPECT_EQ(sinks[i]->row_tokens(1), Greedy({42}, 9));
    EXPECT_EQ(sinks[i]->trace().generated_tokens, 18);
    EXPECT_GE(sinks[i]->trace().steps, 9);
  }
}

TEST(Generation, SeedsEveryDrawByItsOwnIndexAndRow) {
  Harness harness;
  Request request = harness.MakeRequest({{1, 2}, {1, 2}}, /*max_tokens=*/3);
  Mutable(request.spec).sampling.temperature = 1.0f;
  Mutable(request.spec).sampling.seed = 77;
  const auto sink = harness.Submit(request);
  sink->AwaitDone();
  for (int32_t row = 0; row < 2; ++row) {
    std::vector<int32_t> sequence = {1, 2};
    kernels::SampleParams params = request.spec->sampling;
    params.sample = static_cast<uint32_t>(row);
    for (params.token_index = 0; params.token_index < 3; ++params.token_index) {
      sequence.push_back(fake::Draw(sequence, params, 97).token);
    }
    EXPECT_THAT(sink->row_tokens(row), ElementsAreArray(sequence.begin() + 2, sequence.end()));
  }
}

TEST(Generation, StopsAtAnEosAndDoesNotReturnIt) {
  const std::vector<int32_t> generated = Greedy({1, 2, 3}, 3);
  ASSERT_THAT(generated, ::testing::Each(::testing::Not(generated[0] == generated[2])));
  ModelConfig config = FakeConfig();
  config.eos_token_ids = {1000, generated[2]};
  Harness harness(SmallOptions(), config);
  Request request = harness.MakeRequest({{1, 2, 3}}, /*max_tokens=*/10);
  request.outputs = kOutputTokens | kOutputTopCandidates;
  Mutable(request.spec).num_top = 2;
  const auto sink = harness.Submit(request);
  sink->AwaitDone();
  EXPECT_THAT(sink->row_tokens(0), ElementsAre(generated[0], generated[1]));
  EXPECT_THAT(sink->reply().finish, ElementsAre(FinishReason::kStop));
  EXPECT_EQ(sink->row_top_ids(0).size(), 4u);
  EXPECT_EQ(sink->row_top_logprobs(0).size(), 4u);
  EXPECT_EQ(sink->trace().steps, 3);
  EXPECT_EQ(sink->trace().generated_tokens, 2);
}

TEST(Generation, StopsAtTheLastPosition) {
  Harness harness;
  const std::vector<int32_t> prompt(62, 9);
  const auto sink = harness.Submit(harness.MakeRequest({prompt}, /*max_tokens=*/50));
  sink->AwaitDone();
  EXPECT_EQ(sink->row_tokens(0), Greedy(prompt, 3));  // after 62, 63 and 64 positions
  EXPECT_THAT(sink->reply().finish, ElementsAre(FinishReason::kLength));
}

TEST(Generation, EndsAtTheRequestsStopIdsAndMayIgnoreEos) {
  const std::vector<int32_t> generated = Greedy({1, 2, 3}, 6);
  ModelConfig config = FakeConfig();
  config.eos_token_ids = {generated[2]};
  Harness harness(SmallOptions(), config);
  Request request = harness.MakeRequest({{1, 2, 3}}, /*max_tokens=*/6);
  Mutable(request.spec).stop.ignore_eos = true;
  auto sink = harness.Submit(request);
  sink->AwaitDone();
  EXPECT_EQ(sink->row_tokens(0), generated);
  EXPECT_THAT(sink->reply().finish, ElementsAre(FinishReason::kLength));

  Mutable(request.spec).stop.ids = {generated[4]};
  sink = harness.Submit(request);
  sink->AwaitDone();
  EXPECT_THAT(sink->row_tokens(0), ElementsAreArray(generated.begin(), generated.begin() + 4));
  EXPECT_THAT(sink->reply().finish, ElementsAre(FinishReason::kStop));
}

TEST(Generation, EndsWithTheTokenThatCompletesAStopText) {
  auto model = std::make_shared<Model>();
  model->name = "fake";
  model->config = FakeConfig();
  model->tokenizer = MakeByteTokenizer(-1);
  FakeClock clock;
  RecordingObserver observer;
  FakeBackend backend;
  const auto engine = Engine::Create(SmallOptions(), &backend, &clock, &observer);
  ASSERT_TRUE(engine->Serve(model).ok());
  const std::vector<int32_t> generated = Greedy({7}, 20);
  Request request;
  Mutable(request.spec).model = model;
  request.tokens = {7};
  Mutable(request.spec).lengths = {1};
  Mutable(request.spec).max_tokens = 20;
  Mutable(request.spec).stop.texts = {"no such text", std::string{static_cast<char>(generated[5]),
                                                                  static_cast<char>(generated[6])}};
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine->Submit(request, sink, clock.Now()).ok());
  sink->AwaitDone();
  EXPECT_THAT(sink->row_tokens(0), ElementsAreArray(generated.begin(), generated.begin() + 7));
  EXPECT_THAT(sink->reply().finish, ElementsAre(FinishReason::kStop));
}

// A step of one token reads everything about earlier positions from the pages.
TEST(Generation, ComputesEachTokenOnce) {
  Harness harness;
  const auto sink = harness.Submit(harness.MakeRequest({{1, 2, 3, 4, 5}}, /*max_tokens=*/6));
  sink->AwaitDone();
  std::vector<int64_t> useful;
  for (const BatchTrace& batch : harness.observer.batches()) useful.push_back(batch.useful_tokens);
  EXPECT_THAT(useful, ElementsAre(5, 1, 1, 1, 1, 1));
}

TEST(Generation, OtherPoliciesComputeTheWholeSequenceInEachStep) {
  EngineOptions options = SmallOptions();
  options.batch.policy = PolicyKind::kFifoPacked;
  Harness harness(options);
  const auto sink = harness.Submit(harness.MakeRequest({{1, 2, 3, 4, 5}}, /*max_tokens=*/3));
  sink->AwaitDone();
  EXPECT_EQ(sink->row_tokens(0), Greedy({1, 2, 3, 4, 5}, 3));
  std::vector<int64_t> useful;
  for (const BatchTrace& batch : harness.observer.batches()) useful.push_back(batch.useful_tokens);
  EXPECT_THAT(useful, ElementsAre(5, 6, 7));
  EXPECT_EQ(harness.engine->Stats()[0].kv.pages, 0);
}

// The tokens are the same as for the sequence by itself, for any number of pages, chunks and reused
// prefixes.
TEST(Generation, ChunksPreemptionAndReuseChangeNoToken) {
  constexpr int32_t kSmallBatch = 8;
  std::mt19937_64 random(11);
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < 12; ++i) {
    std::vector<int32_t> prompt(8, 3);  // shared
    for (uint64_t own = random() % 12; own > 0; --own) {
      prompt.push_back(static_cast<int32_t>(random() % 97));
    }
    prompts.push_back(prompt);
  }
  int64_t preemptions = 0, reused = 0;
  for (const int32_t chunk : {0, 1, 3, 4, 5, 7, kSmallBatch}) {
    for (const bool reuse : {false, true}) {
      for (const int64_t pages : {19, 64}) {
        SCOPED_TRACE(absl::StrCat(chunk, " ", reuse, " ", pages));
        EngineOptions options = SmallOptions();
        options.batch.prefill_tokens = chunk;
        if (chunk == kSmallBatch) options.batch.max_batch_tokens = chunk;  // prompts exceed it
        options.kv = {.memory_bytes = pages * 4, .prefix_reuse = reuse};
        Harness harness(options);
        std::vector<std::shared_ptr<RecordingSink>> sinks;
        for (const auto& prompt : prompts) {
          sinks.push_back(harness.Submit(harness.MakeRequest({prompt, {42}}, /*max_tokens=*/30)));
        }
        for (size_t i = 0; i < prompts.size(); ++i) {
          sinks[i]->AwaitDone();
          ASSERT_TRUE(sinks[i]->status().ok()) << sinks[i]->status();
          ASSERT_EQ(sinks[i]->row_tokens(0), Greedy(prompts[i], 30));
          ASSERT_EQ(sinks[i]->row_tokens(1), Greedy({42}, 30));
        }
        const KvStats kv = harness.engine->Stats()[0].kv;
        EXPECT_EQ(kv.pages, pages);
        EXPECT_EQ(kv.held, 0);
        EXPECT_EQ(kv.reused_tokens > 0, reuse);
        EXPECT_EQ(harness.observer.preemptions(), kv.preemptions);
        preemptions += kv.preemptions;
        reused += kv.reused_tokens;
        for (const BatchTrace& batch : harness.observer.batches()) {
          ASSERT_TRUE(chunk == 0 || batch.useful_tokens <= 4 * chunk) << batch.useful_tokens;
        }
      }
    }
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(reused, 0);
}

TEST(Generation, PrefixesAreSharedOnlyWithinACaller) {
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  for (const bool is_private : {true, false}) {
    SCOPED_TRACE(is_private);
    EngineOptions options = SmallOptions();
    options.kv.private_prefixes = is_private;
    Harness harness(options);
    const auto reused = [&](const char* caller, bool anonymous = false) {
      Request request = harness.MakeRequest({prompt});
      request.caller = caller;
      request.anonymous = anonymous;
      const auto sink = harness.Submit(std::move(request));
      sink->AwaitDone();
      EXPECT_EQ(sink->row_tokens(0), Greedy(prompt, 1));
      return sink->trace().reused_tokens;
    };
    EXPECT_EQ(reused("alice"), 0);
    EXPECT_EQ(reused("alice"), 8);
    EXPECT_EQ(reused("mallory"), is_private ? 0 : 8);
    EXPECT_EQ(reused("anonymous", true), is_private ? 0 : 8);
    EXPECT_EQ(reused("anonymous", true), is_private ? 0 : 8);
    EXPECT_EQ(reused(""), is_private ? 0 : 8) << "callers are not identified";
    EXPECT_EQ(reused(""), 8);
  }
}

TEST(Generation, ReusesPagesOfEarlierPromptsUnlessEveryPositionIsReported) {
  Harness harness;
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  harness.Submit(harness.MakeRequest({prompt}))->AwaitDone();
  const auto again = harness.Submit(harness.MakeRequest({prompt}));
  again->AwaitDone();
  EXPECT_EQ(again->row_tokens(0), Greedy(prompt, 1));
  EXPECT_EQ(again->trace().reused_tokens, 8);
  for (const uint32_t outputs : {kOutputPromptLogprobs, kOutputDiagnostics}) {
    Request request = harness.MakeRequest({prompt});
    request.outputs |= outputs;
    const auto sink = harness.Submit(request);
    sink->AwaitDone();
    EXPECT_EQ(sink->trace().reused_tokens, 0);
    EXPECT_EQ(sink->row_tokens(0), Greedy(prompt, 1));
  }
}

// The fake backend derives the diagnostics from the token and its position, so the test detects a
// token at a wrong position.
TEST(Generation, DiagnosticsCoverTheTokensThatAreComputed) {
  Harness harness;
  const std::vector<std::vector<int32_t>> prompts = {{1, 2, 3}, {4}, {5, 6, 7, 8, 9}};
  for (const int32_t max_tokens : {0, 1, 5}) {
    Request request = harness.MakeRequest(prompts, max_tokens);
    request.outputs |= kOutputDiagnostics;
    // The second row ends before its third token, which is drawn and not returned.
    const std::vector<int32_t> second = Greedy({4}, 3);
    Mutable(request.spec).stop.ids = {second[2]};
    const auto sink = harness.Submit(request);
    sink->AwaitDone();
    ASSERT_TRUE(sink->status().ok()) << sink->status();
    const Reply reply = sink->reply();
    std::vector<float> expected;
    for (int32_t row = 0; row < 3; ++row) {
      std::vector<int32_t> tokens = prompts[row];
      const std::vector<int32_t> drawn = sink->row_tokens(row);
      tokens.insert(tokens.end(), drawn.begin(), drawn.end());
      if (reply.finish[row] == FinishReason::kLength) tokens.pop_back();
      EXPECT_EQ(reply.xsa_positions[row], std::ssize(tokens));
      for (int64_t layer = 0; layer < 2; ++layer) {
        for (int32_t p = 0; p < std::ssize(tokens); ++p) {
          for (int64_t head = 0; head < 3; ++head) {
            expected.push_back(fake::CosSim(layer, tokens[p], p, head));
          }
        }
      }
    }
    EXPECT_EQ(reply.xsa_cos_sim, expected) << max_tokens << " tokens";
  }
}

TEST(Generation, ACancelledRequestFreesItsPages) {
  Harness harness;
  Gate gate;
  RequestId id = 0;
  std::atomic<int> replays = 0;
  harness.backend.OnReplay([&](const RecordedBatch&) {
    if (++replays == 3) gate.Pass();
    return absl::OkStatus();
  });
  const auto sink = harness.Submit(harness.MakeRequest({{1, 2, 3, 4, 5, 6, 7}}, 40), &id);
  gate.AwaitArrivals(1);
  EXPECT_EQ(harness.engine->Stats()[0].kv.held, 3);  // pages, for 7 + 2 tokens
  harness.engine->Cancel(id);
  gate.Open();
  sink->AwaitDone();
  EXPECT_TRUE(absl::IsCancelled(sink->status()));
  EXPECT_EQ(harness.engine->Stats()[0].kv.held, 0);
  EXPECT_EQ(harness.engine->Stats()[0].running_sequences, 0);
}

}  // namespace
}  // namespace sluice
