// An engine whose ladder is reviewed and chosen. The time of a step depends on its bucket.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "tests/engine/runner/harness.h"
#include "tests/support/request_spec.h"

namespace sluice {

inline EngineOptions AdaptiveOptions() {
  EngineOptions options = SmallOptions();
  options.ladder.strategy = StrategyKind::kAdaptive;
  options.ladder.min_tokens = 8;
  options.ladder.review.interval_us = 0;
  return options;
}

// An engine on a device where the time of a step depends on its bucket, also during warm-up.
class ReviewedEngine {
 public:
  explicit ReviewedEngine(const EngineOptions& options) {
    backend.OnReplay([this](const RecordedBatch& batch) {
      clock.Advance(std::chrono::microseconds(100 + 20 * batch.bucket.tokens));
      return absl::OkStatus();
    });
    engine = Engine::Create(options, &backend, &clock, &observer);
    EXPECT_TRUE(engine->Serve(model).ok());
  }

  // Serves `count` requests of this length, one after another.
  void Serve(int32_t length, int count) {
    for (int i = 0; i < count; ++i) {
      Request request;
      Mutable(request.spec).model = model;
      request.tokens.assign(static_cast<size_t>(length), i % 90);
      Mutable(request.spec).lengths = {length};
      const auto sink = std::make_shared<RecordingSink>();
      ASSERT_TRUE(engine->Submit(request, sink, clock.Now()).ok());
      sink->AwaitDone();
      ASSERT_TRUE(sink->status().ok());
      EXPECT_EQ(sink->row_tokens(0), Greedy(request.tokens, 1));
    }
  }

  bool HasBucket(int32_t tokens) const {
    const std::vector<BucketStats> buckets = engine->Stats()[0].buckets;
    return std::any_of(buckets.begin(), buckets.end(), [&](const BucketStats& bucket) {
      return bucket.bucket.tokens == tokens && bucket.in_ladder && bucket.ready;
    });
  }

  FakeClock clock;
  RecordingObserver observer;
  FakeBackend backend;
  const std::shared_ptr<const Model> model = FakeModel(FakeConfig());
  std::unique_ptr<Engine> engine;
};

}  // namespace sluice
