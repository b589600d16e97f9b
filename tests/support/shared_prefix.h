// Checks that a prefix shared by several items is computed once and changes no bit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "engine/engine.h"
#include "gtest/gtest.h"
#include "tests/support/random_requests.h"
#include "tests/support/recording_observer.h"
#include "tests/support/request_spec.h"

namespace sluice {

struct SharedPrefix {
  int32_t prefix;
  int32_t items;
  int32_t longest_item = 7;
};

// Scores the items as rows of one request, and each item as a separate request in an engine without
// prefix sharing.
inline void ExpectSharedPrefixIsComputedOnce(Backend* backend,
                                             const std::shared_ptr<const Model>& model,
                                             EngineOptions options, const SharedPrefix& sizes) {
  constexpr uint64_t kSeed = 20261124;
  SCOPED_TRACE(kSeed);
  const ModelConfig& config = model->config;
  std::mt19937_64 random(kSeed);
  const auto draw = [&] { return static_cast<int32_t>(random() % config.vocab_size); };
  std::vector<int32_t> prefix(sizes.prefix);
  std::ranges::generate(prefix, draw);
  Request all;
  RequestSpec& spec = Mutable(all.spec);
  spec.model = model;
  all.outputs = kOutputTokens | kOutputEmbedding | kOutputCandidates;
  all.candidates.begin = {0};
  int64_t expected = sizes.prefix;
  for (int32_t i = 0; i < sizes.items; ++i) {
    const int32_t item = 1 + static_cast<int32_t>(random() % sizes.longest_item);
    expected += item;
    spec.lengths.push_back(sizes.prefix + item);
    all.tokens.insert(all.tokens.end(), prefix.begin(), prefix.end());
    // Each item starts with a different token, so that items share only the prefix.
    all.tokens.push_back(static_cast<int32_t>(i % config.vocab_size));
    std::generate_n(std::back_inserter(all.tokens), item - 1, draw);
    all.candidates.values.push_back(draw());
    all.candidates.begin.push_back(i + 1);
  }
  RecordingObserver observer;
  const auto together = Engine::Create(options, backend, Clock::Real(), &observer);
  ASSERT_TRUE(together->Serve(model).ok());
  const auto scored = SubmitTo(together.get(), all);
  scored->AwaitDone();
  ASSERT_TRUE(scored->status().ok()) << scored->status();
  int64_t computed = 0;
  for (const BatchTrace& batch : observer.batches()) computed += batch.useful_tokens;
  EXPECT_EQ(computed, expected);

  options.kv.prefix_reuse = false;
  RecordingObserver observer_apart;
  const auto apart = Engine::Create(options, backend, Clock::Real(), &observer_apart);
  ASSERT_TRUE(apart->Serve(model).ok());
  const Reply answer = scored->reply();
  const int64_t width = config.embedding_size();
  auto begin = all.tokens.begin();
  for (int32_t i = 0; i < sizes.items; ++i) {
    SCOPED_TRACE(i);
    Request one = all;
    const int32_t length = all.spec->lengths[i];
    Mutable(one.spec).lengths = {length};
    one.tokens.assign(begin, begin + length);
    one.candidates = {.values = {all.candidates.values[i]}, .begin = {0, 1}};
    begin += length;
    const auto sink = SubmitTo(apart.get(), one);
    sink->AwaitDone();
    ASSERT_TRUE(sink->status().ok()) << sink->status();
    const Reply alone = sink->reply();
    EXPECT_EQ(alone.candidate_scores[0], answer.candidate_scores[i]);
    EXPECT_TRUE(std::equal(alone.embedding.begin(), alone.embedding.end(),
                           answer.embedding.begin() + i * width));
    EXPECT_EQ(sink->trace().reused_tokens, 0);
  }
}

}  // namespace sluice
