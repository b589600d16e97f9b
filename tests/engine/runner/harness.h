// An engine on the fake backend and clock that serves one fake model.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "gtest/gtest.h"
#include "tests/support/fake_backend.h"
#include "tests/support/fake_clock.h"
#include "tests/support/gate.h"
#include "tests/support/recording_observer.h"
#include "tests/support/request_spec.h"

namespace sluice {

// Returns options for batches of at most 64 tokens (a whole sequence of the fake model) and 4
// sequences, with a fixed ladder of 8, 16, 32 and 64 tokens.
inline EngineOptions SmallOptions() {
  EngineOptions options;
  options.ladder.strategy = StrategyKind::kGeometric;
  options.ladder.ratio = 2;
  options.ladder.min_tokens = 8;
  options.batch.max_batch_tokens = 64;
  options.batch.max_batch_sequences = 4;
  options.ladder.warm_up_us = 60'000'000;  // all buckets are ready at once
  return options;
}

// Returns a request with these rows and default parameters.
inline Request RequestOf(const std::shared_ptr<const Model>& model,
                         const std::vector<std::vector<int32_t>>& rows, int32_t max_tokens) {
  Request request;
  RequestSpec& spec = Mutable(request.spec);
  spec.model = model;
  for (const std::vector<int32_t>& row : rows) {
    spec.lengths.push_back(static_cast<int32_t>(row.size()));
    request.tokens.insert(request.tokens.end(), row.begin(), row.end());
  }
  spec.max_tokens = max_tokens;
  return request;
}

struct Harness {
  explicit Harness(const EngineOptions& options = SmallOptions(),
                   const ModelConfig& config = FakeConfig(),
                   const FakeBackend::Options& backend_options = {})
      : backend(backend_options),
        model(FakeModel(config)),
        engine(Engine::Create(options, &backend, &clock, &observer)) {
    const absl::Status served = engine->Serve(model);
    EXPECT_TRUE(served.ok()) << served;
    backend.ForgetBatches();
  }

  Request MakeRequest(const std::vector<std::vector<int32_t>>& rows, int32_t max_tokens = 1) const {
    return RequestOf(model, rows, max_tokens);
  }

  // Submits a request, which must be admitted.
  std::shared_ptr<RecordingSink> Submit(Request request, RequestId* id = nullptr) {
    auto sink = std::make_shared<RecordingSink>(request.spec->num_top);
    const absl::StatusOr<RequestId> submitted =
        engine->Submit(std::move(request), sink, clock.Now());
    EXPECT_TRUE(submitted.ok()) << submitted.status();
    if (id != nullptr && submitted.ok()) *id = *submitted;
    return sink;
  }

  // Makes every replay from now on wait at the gate.
  void HoldReplaysAt(Gate* gate) {
    backend.OnReplay([gate](const RecordedBatch&) {
      gate->Pass();
      return absl::OkStatus();
    });
  }

  FakeClock clock;
  RecordingObserver observer;
  FakeBackend backend;
  std::shared_ptr<const Model> model;
  std::unique_ptr<Engine> engine;
};

// Returns the tokens that the fake model generates greedily from `sequence`.
inline std::vector<int32_t> Greedy(std::vector<int32_t> sequence, int32_t count,
                                   int64_t vocab = FakeConfig().vocab_size) {
  std::vector<int32_t> generated;
  for (int32_t i = 0; i < count; ++i) {
    generated.push_back(fake::Draw(sequence, {}, vocab).token);
    sequence.push_back(generated.back());
  }
  return generated;
}

// Returns whether a step computed a sequence that begins with `prompt`.
inline bool Ran(const std::vector<RecordedBatch>& batches, const std::vector<int32_t>& prompt) {
  for (const RecordedBatch& batch : batches) {
    for (const std::vector<int32_t>& sequence : batch.sequences) {
      if (sequence.size() >= prompt.size() &&
          std::equal(prompt.begin(), prompt.end(), sequence.begin())) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace sluice
