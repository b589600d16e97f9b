// Runs the heads that read states of tokens on an emulated GPU: the host computes them from the
// device's states, and the scores are those of the CPU within the rounding of the states.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
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

// The rows of a request: queries first, one for all documents or one for each, then documents.
struct Rows {
  int32_t queries;
  std::vector<std::vector<int32_t>> tokens;
};

Rows RandomRows(const Model& model, int32_t queries, int32_t documents, std::mt19937_64& random) {
  Rows rows = {.queries = queries, .tokens = {}};
  for (int32_t row = 0; row < queries + documents; ++row) {
    std::vector<int32_t>& tokens = rows.tokens.emplace_back(3 + random() % 18);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % model.config.vocab_size);
  }
  return rows;
}

// Returns a request for the scores or vectors of the rows. All tokens but the first two have
// vectors.
Request RequestOf(const std::shared_ptr<const Model>& model, const Rows& rows, uint32_t outputs) {
  Request request;
  RequestSpec& spec = Mutable(request.spec);
  spec.model = model;
  spec.max_tokens = 0;
  spec.states.normalize = true;
  request.outputs = outputs;
  request.queries = outputs == kOutputMaxSim ? rows.queries : 0;
  request.vectors.begin.push_back(0);
  for (const std::vector<int32_t>& tokens : rows.tokens) {
    spec.lengths.push_back(static_cast<int32_t>(std::ssize(tokens)));
    request.tokens.insert(request.tokens.end(), tokens.begin(), tokens.end());
    for (int32_t i = 2; i < std::ssize(tokens); ++i) request.vectors.values.push_back(i);
    request.vectors.begin.push_back(static_cast<int32_t>(std::ssize(request.vectors.values)));
  }
  return request;
}

// A model that is served by a backend.
class Served {
 public:
  Served(Backend* backend, const std::shared_ptr<const Model>& model) : model_(model) {
    // Several steps, so that queries and documents are in different ones.
    EngineOptions options;
    options.batch.max_batch_tokens = 64;
    options.batch.max_batch_sequences = 4;
    options.ladder.max_buckets = 2;
    engine_ = Engine::Create(options, backend, Clock::Real(), &observer_);
    EXPECT_TRUE(engine_->Serve(model).ok());
  }

  std::vector<float> Scores(const Rows& rows) { return Answer(rows, kOutputMaxSim).max_sim; }
  std::vector<float> Vectors(const Rows& rows) { return Answer(rows, kOutputVectors).vectors; }

 private:
  Reply Answer(const Rows& rows, uint32_t outputs) {
    const auto sink = SubmitTo(engine_.get(), RequestOf(model_, rows, outputs));
    sink->AwaitDone();
    EXPECT_TRUE(sink->status().ok()) << sink->status();
    return sink->reply();
  }

  const std::shared_ptr<const Model> model_;
  RecordingObserver observer_;
  std::unique_ptr<Engine> engine_;
};

// Returns the score of a document by the vectors of all rows, in double.
double Reference(const Rows& rows, const std::vector<float>& vectors, int32_t document) {
  const int64_t width = [&] {
    int64_t count = 0;
    for (const std::vector<int32_t>& tokens : rows.tokens) count += std::ssize(tokens) - 2;
    return std::ssize(vectors) / count;
  }();
  const auto of_row = [&](int32_t row) {
    int64_t before = 0;
    for (int32_t i = 0; i < row; ++i) before += std::ssize(rows.tokens[i]) - 2;
    return std::span(vectors).subspan(before * width, (std::ssize(rows.tokens[row]) - 2) * width);
  };
  const std::span<const float> query = of_row(rows.queries == 1 ? 0 : document);
  const std::span<const float> of_document = of_row(rows.queries + document);
  double sum = 0;
  for (int64_t q = 0; q < std::ssize(query); q += width) {
    double most = -std::numeric_limits<double>::infinity();
    for (int64_t d = 0; d < std::ssize(of_document); d += width) {
      double product = 0;
      for (int64_t i = 0; i < width; ++i) product += double{query[q + i]} * of_document[d + i];
      most = std::max(most, product);
    }
    sum += most;
  }
  return sum;
}

// Compares the scores of an emulated GPU with the vectors that it makes and with the scores of the
// CPU. Each number of queries is 1 or `documents`.
void CheckMaxSim(const std::string& name, const std::vector<int32_t>& numbers_of_queries,
                 int32_t documents) {
  SCOPED_TRACE(name);
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const auto model = LoadModel(name, 1, GoldenPath("retrieval/" + name));
  ASSERT_TRUE(model.ok()) << model.status();
  const auto cpu = MakeCpuBackend({.threads = 1, .profile = "f32"});
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  const auto cuda =
      MakeCudaBackend(simt::MakeSimtDevice({.seed = seed}), {.dtype = "f32", .poison = true});
  ASSERT_TRUE(cuda.ok()) << cuda.status();
  Served on_cpu(cpu->get(), *model), on_cuda(cuda->get(), *model);
  for (const int32_t queries : numbers_of_queries) {
    const Rows rows = RandomRows(**model, queries, documents, random);
    const std::vector<float> scores = on_cuda.Scores(rows);
    const std::vector<float> vectors = on_cuda.Vectors(rows);
    const std::vector<float> of_cpu = on_cpu.Scores(rows);
    ASSERT_EQ(std::ssize(scores), documents);
    for (int32_t i = 0; i < documents; ++i) {
      const std::vector<int32_t>& query = rows.tokens[queries == 1 ? 0 : i];
      const double tolerance = 1e-6 * static_cast<double>(query.size());
      EXPECT_NEAR(scores[i], Reference(rows, vectors, i), tolerance) << i;
      EXPECT_NEAR(scores[i], of_cpu[i], tolerance) << i;
    }
    EXPECT_NE(scores[0], scores[1]);
    // The same bits without the other documents.
    const std::vector<int32_t>& query = rows.tokens[queries - 1];
    const Rows alone = {.queries = 1, .tokens = {query, rows.tokens.back()}};
    EXPECT_EQ(on_cuda.Scores(alone), std::vector<float>{scores.back()});
  }
}

TEST(HeadsOnCuda, MaxSimEqualsTheScoreOfTheVectorsAndTheCpus) {
  for (const char* const name : {"pylate", "attending", "colbert"}) {
    CheckMaxSim(name, {1, 6}, 6);
  }
}

TEST(HeadsOnCuda, MaxSimIsRightInAnyOrderOfTheWork) { CheckMaxSim("colbert", {2}, 2); }

}  // namespace
}  // namespace sluice::testing
