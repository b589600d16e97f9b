// Random requests, and the comparison of the answers of two runs.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>

#include "engine/engine.h"
#include "gtest/gtest.h"
#include "tests/support/recording_observer.h"
#include "tests/support/request_spec.h"

namespace sluice {

struct RequestMix {
  uint64_t most_rows = 3;
  int64_t most_length = 1 << 20;  // of a prompt; also limited by the model's positions
  uint64_t most_tokens = 4;       // to generate
  bool stops = false;             // whether some requests have tokens that end a row
  bool edits = false;             // whether some draws depend on earlier tokens
};

// Returns a request for most of the model's outputs.
inline Request RandomRequest(const std::shared_ptr<const Model>& model, std::mt19937_64& random,
                             const RequestMix& mix = {}) {
  const ModelConfig& config = model->config;
  const int64_t most_length = std::min<int64_t>(config.max_positions, mix.most_length);
  Request request;
  RequestSpec& spec = Mutable(request.spec);
  spec.model = model;
  for (uint64_t rows = 1 + random() % mix.most_rows; rows > 0; --rows) {
    const auto length = static_cast<int32_t>(1 + random() % most_length);
    spec.lengths.push_back(length);
    for (int32_t i = 0; i < length; ++i) {
      request.tokens.push_back(static_cast<int32_t>(random() % config.vocab_size));
    }
  }
  request.outputs = kOutputTokens | kOutputTopCandidates | kOutputLogits | kOutputDiagnostics;
  if (random() % 2 == 0) request.outputs |= kOutputPromptLogprobs;
  spec.num_top = 3;
  spec.max_tokens = static_cast<int32_t>(random() % mix.most_tokens);
  spec.sampling.temperature = random() % 2 == 0 ? 0.0f : 0.8f;
  spec.sampling.seed = random();
  for (int32_t id = 0; mix.stops && random() % 2 == 0 && id < config.vocab_size; id += 9) {
    spec.stop.ids.push_back(id);
  }
  if (mix.edits && random() % 4 == 0) spec.edits.presence_penalty = 1;
  return request;
}

// Submits a request. The engine must admit it, also on a slow machine, so the request may wait for
// an hour if it has no deadline. If the engine refuses it, the test fails, and the request ends
// with the engine's error, so that AwaitDone returns.
inline std::shared_ptr<RecordingSink> SubmitTo(Engine* engine, Request request) {
  auto sink = std::make_shared<RecordingSink>(request.spec->num_top);
  const MonoTime now = Clock::Real()->Now();
  request.deadline = std::min(request.deadline, now + std::chrono::hours(1));
  const auto submitted = engine->Submit(request, sink, now);
  if (!submitted.ok()) {
    ADD_FAILURE() << submitted.status();
    sink->OnDone(submitted.status(), {}, {});
  }
  return sink;
}

// Expects that both requests succeeded with the same bits.
inline void ExpectSameAnswer(const RecordingSink& expected, const RecordingSink& got) {
  ASSERT_TRUE(expected.status().ok()) << expected.status();
  ASSERT_TRUE(got.status().ok()) << got.status();
  const Reply a = expected.reply(), b = got.reply();
  EXPECT_EQ(a.finish, b.finish);
  EXPECT_EQ(a.logits, b.logits);
  EXPECT_EQ(a.prompt_logprobs, b.prompt_logprobs);
  EXPECT_EQ(a.embedding, b.embedding);
  EXPECT_EQ(a.scores, b.scores);
  EXPECT_EQ(a.token_scores, b.token_scores);
  EXPECT_EQ(a.token_states, b.token_states);
  EXPECT_EQ(a.xsa_cos_sim, b.xsa_cos_sim);
  EXPECT_EQ(a.xsa_proj_frac, b.xsa_proj_frac);
  for (int32_t row = 0; row < static_cast<int32_t>(a.finish.size()); ++row) {
    EXPECT_EQ(expected.row_tokens(row), got.row_tokens(row));
    EXPECT_EQ(expected.row_logprobs(row), got.row_logprobs(row));
    EXPECT_EQ(expected.row_top_ids(row), got.row_top_ids(row));
    EXPECT_EQ(expected.row_top_logprobs(row), got.row_top_logprobs(row));
  }
}

}  // namespace sluice
