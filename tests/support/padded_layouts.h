// Compares padded layouts with the packed layout, on any backend.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "engine/engine.h"
#include "gtest/gtest.h"
#include "tests/support/random_requests.h"
#include "tests/support/recording_observer.h"

namespace sluice {

// Returns a request for the embedding and token states of random rows.
inline Request RandomEmbedding(const std::shared_ptr<const Model>& model, std::mt19937_64& random,
                               const RequestMix& mix = {}) {
  Request request = RandomRequest(model, random, mix);
  request.outputs = kOutputEmbedding | kOutputTokenStates;
  RequestSpec& spec = Mutable(request.spec);
  spec.max_tokens = 0;
  spec.num_top = 0;
  return request;
}

// Serves the model packed and in padded layouts. Expects that `requests` random requests have the
// same bits in all layouts and that the padded layouts compute whole rectangles.
inline void ExpectPaddedGivesPackedBits(
    Backend* backend, const std::shared_ptr<const Model>& model, EngineOptions options,
    const std::function<Request(std::mt19937_64&)>& random_request, int requests) {
  constexpr uint64_t kSeed = 20261121;
  SCOPED_TRACE(kSeed);
  RecordingObserver packed_observer;
  const auto packed = Engine::Create(options, backend, Clock::Real(), &packed_observer);
  ASSERT_TRUE(packed->Serve(model).ok());
  for (const PolicyKind policy : {PolicyKind::kPaddedBuckets, PolicyKind::kStaticPadded}) {
    for (const PaddingKind padding : {PaddingKind::kZeros, PaddingKind::kAdaptive}) {
      SCOPED_TRACE(static_cast<int>(policy));
      options.batch.policy = policy;
      options.batch.padding = padding;
      RecordingObserver observer;
      const auto padded = Engine::Create(options, backend, Clock::Real(), &observer);
      const absl::Status served = padded->Serve(model);
      ASSERT_TRUE(served.ok()) << served;
      std::mt19937_64 random(kSeed);
      std::vector<std::shared_ptr<RecordingSink>> expected, got;
      for (int i = 0; i < requests; ++i) {
        const Request request = random_request(random);
        expected.push_back(SubmitTo(packed.get(), request));
        got.push_back(SubmitTo(padded.get(), request));
      }
      for (const auto& sink : expected) sink->AwaitDone();
      padded->Drain(MonoTime::max());
      for (size_t i = 0; i < got.size(); ++i) {
        SCOPED_TRACE(i);
        ExpectSameAnswer(*expected[i], *got[i]);
        if (::testing::Test::HasFailure()) return;
      }
      int64_t padding_tokens = 0;
      for (const BatchTrace& batch : observer.batches()) {
        EXPECT_EQ(batch.computed_tokens, batch.bucket.tokens);
        EXPECT_LE(batch.useful_tokens, batch.computed_tokens);
        padding_tokens += batch.computed_tokens - batch.useful_tokens;
      }
      EXPECT_GT(padding_tokens, 0);
    }
  }
}

}  // namespace sluice
