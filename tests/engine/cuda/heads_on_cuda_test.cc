// Runs the heads that read states of tokens on an emulated GPU: the host computes them from the
// device's states, and the scores are those of the CPU within the rounding of the states.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/cpu/cpu_backend.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/cuda/emulator/simt_device.h"
#include "engine/engine.h"
#include "engine/model/model.h"
#include "tests/support/golden_file.h"
#include "tests/support/random_requests.h"
#include "tests/support/recording_observer.h"

namespace sluice::testing {
namespace {

constexpr int32_t kQueries = 1, kDocuments = 6;

// A query and documents of different lengths. All tokens but the first two have vectors.
Request MaxSimRequest(const std::shared_ptr<const Model>& model, std::mt19937_64& random) {
  Request request;
  RequestSpec& spec = Mutable(request.spec);
  spec.model = model;
  spec.max_tokens = 0;
  request.outputs = kOutputMaxSim;
  request.queries = kQueries;
  request.vectors.begin.push_back(0);
  for (int32_t row = 0; row < kQueries + kDocuments; ++row) {
    const auto length = static_cast<int32_t>(3 + random() % 18);
    spec.lengths.push_back(length);
    for (int32_t i = 0; i < length; ++i) {
      request.tokens.push_back(static_cast<int32_t>(random() % model->config.vocab_size));
      if (i >= 2) request.vectors.values.push_back(i);
    }
    request.vectors.begin.push_back(static_cast<int32_t>(std::ssize(request.vectors.values)));
  }
  return request;
}

std::vector<float> ScoresOf(Backend* backend, const std::shared_ptr<const Model>& model,
                            const Request& request) {
  EngineOptions options;
  options.batch.max_batch_tokens = 64;
  options.batch.max_batch_sequences = 4;
  options.ladder.max_buckets = 2;
  RecordingObserver observer;
  const auto engine = Engine::Create(options, backend, Clock::Real(), &observer);
  EXPECT_TRUE(engine->Serve(model).ok());
  const auto sink = SubmitTo(engine.get(), request);
  sink->AwaitDone();
  EXPECT_TRUE(sink->status().ok()) << sink->status();
  return sink->reply().max_sim;
}

TEST(HeadsOnCuda, MaxSimEqualsTheCpus) {
  std::mt19937_64 random(20261129);
  for (const char* const name : {"pylate", "attending", "colbert"}) {
    SCOPED_TRACE(name);
    const auto model = LoadModel(name, 1, GoldenPath(std::string("retrieval/") + name));
    ASSERT_TRUE(model.ok()) << model.status();
    const Request request = MaxSimRequest(*model, random);
    const auto cpu = MakeCpuBackend({.threads = 1, .profile = "f32"});
    ASSERT_TRUE(cpu.ok()) << cpu.status();
    const auto cuda = MakeCudaBackend(simt::MakeSimtDevice(), {.dtype = "f32", .poison = true});
    ASSERT_TRUE(cuda.ok()) << cuda.status();
    const std::vector<float> expected = ScoresOf(cpu->get(), *model, request);
    const std::vector<float> found = ScoresOf(cuda->get(), *model, request);
    ASSERT_EQ(std::ssize(found), kDocuments);
    for (int32_t i = 0; i < kDocuments; ++i) {
      EXPECT_NEAR(found[i], expected[i], 1e-6 * std::abs(expected[i])) << i;
    }
    EXPECT_NE(found[0], found[1]);
  }
}

}  // namespace
}  // namespace sluice::testing
