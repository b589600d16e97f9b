// The outputs of single tokens for retrieval: spans, vectors, MaxSim and the weights of terms.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "engine/rows/max_sim_scores.h"
#include "engine/rows/row_states.h"
#include "engine/rows/sparse_terms.h"
#include "tests/support/fake_backend.h"
#include "tests/support/request_spec.h"

namespace sluice {
namespace {

constexpr int32_t kLength = 9;

// A model whose vectors are its states.
ModelConfig ConfigWithVectors() {
  ModelConfig config = FakeConfig();
  config.serving.vectors.emplace();
  return config;
}

Request RequestFor(uint32_t outputs) {
  Request request;
  Mutable(request.spec).model = FakeModel(ConfigWithVectors());
  Mutable(request.spec).lengths = {kLength};
  request.tokens.resize(kLength);
  request.outputs = outputs;
  return request;
}

class RetrievalRowsTest : public testing::Test {
 protected:
  std::vector<float> Draw(int64_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(random_);
    return values;
  }

  // Passes states on in steps of `step` positions, as AppendWanted requests them.
  void Feed(const std::vector<float>& states, int32_t step, RowStates* row) const {
    for (int32_t begin = 0; begin < kLength; begin += step) {
      std::vector<RowStates::Positions> wanted;
      row->AppendWanted(begin, std::min(begin + step, kLength), &wanted);
      std::vector<double> sums;
      for (const RowStates::Positions& positions : wanted) {
        for (int64_t i = 0; i < width_; ++i) {
          double sum = 0;
          for (int32_t p = positions.first; p < positions.first + positions.count; ++p) {
            sum += states[p * width_ + i];
          }
          sums.push_back(sum);
        }
      }
      EXPECT_TRUE(row->Take(wanted, sums, Undivided));
    }
  }

  const uint64_t seed_ = std::random_device()();
  std::mt19937_64 random_{seed_};
  const int64_t width_ = FakeConfig().hidden_size;
};

TEST_F(RetrievalRowsTest, ASpanIsTheMeanOfItsPositionsHoweverTheRowIsCut) {
  SCOPED_TRACE(seed_);
  Request request = RequestFor(kOutputSpans | kOutputEmbedding);
  request.spans = {.values = {0, 3, 2, 9, 8, 9, 0, 9}, .begin = {0, 8}};
  const std::vector<float> states = Draw(kLength * width_);
  for (const int32_t step : {1, 2, 4, kLength}) {
    RowStates row(request, kLength);
    Feed(states, step, &row);
    Reply reply;
    reply.spans.resize(4 * width_);
    reply.embedding.resize(width_);
    ASSERT_TRUE(row.Finish(0, &reply, Undivided));
    for (int64_t span = 0; span < 4; ++span) {
      const int32_t begin = request.spans.values[2 * span],
                    end = request.spans.values[2 * span + 1];
      for (int64_t i = 0; i < width_; ++i) {
        double sum = 0;
        for (int32_t p = begin; p < end; ++p) sum += states[p * width_ + i];
        EXPECT_EQ(reply.spans[span * width_ + i], static_cast<float>(sum / (end - begin)))
            << "span " << span << ", steps of " << step;
      }
    }
  }
}

TEST_F(RetrievalRowsTest, OnlyTheGivenPositionsHaveVectors) {
  SCOPED_TRACE(seed_);
  Request request = RequestFor(kOutputVectors);
  request.vectors = {.values = {1, 2, 5, 8}, .begin = {0, 4}};
  const std::vector<float> states = Draw(kLength * width_);
  RowStates row(request, kLength);
  Feed(states, 4, &row);
  Reply reply;
  reply.vectors.resize(4 * width_);
  ASSERT_TRUE(row.Finish(0, &reply, Undivided));
  for (int64_t i = 0; i < 4; ++i) {
    const auto from = states.begin() + request.vectors.values[i] * width_;
    EXPECT_TRUE(std::equal(from, from + width_, reply.vectors.begin() + i * width_));
  }
}

TEST_F(RetrievalRowsTest, ScoresAreTheSameInAnyOrderOfTheRows) {
  SCOPED_TRACE(seed_);
  for (const auto& [queries, mean] :
       {std::pair(1, false), std::pair(3, false), std::pair(3, true)}) {
    Request request = RequestFor(kOutputMaxSim);
    ModelConfig config = ConfigWithVectors();
    config.serving.mean_of_maxima = mean;
    Mutable(request.spec).model = FakeModel(config);
    request.queries = queries;
    Mutable(request.spec).lengths.assign(queries + 3, kLength);
    std::vector<std::vector<float>> vectors;
    for (int32_t row = 0; row < queries + 3; ++row) vectors.push_back(Draw((row + 1) * width_));
    std::vector<int32_t> order(vectors.size());
    std::iota(order.begin(), order.end(), 0);
    std::vector<float> expected;
    for (int trial = 0; trial < 10; ++trial) {
      MaxSimScores scores(request);
      Reply reply;
      reply.max_sim.assign(3, NAN);
      for (const int32_t row : order) scores.Take(row, vectors[row], Undivided, &reply);
      scores.Take(order[0], {}, Undivided, &reply);  // computed again
      if (expected.empty()) expected = reply.max_sim;
      EXPECT_EQ(reply.max_sim, expected);
      std::shuffle(order.begin(), order.end(), random_);
    }
    for (int32_t document = 0; document < 3; ++document) {
      const std::vector<float>& query = vectors[queries == 1 ? 0 : document];
      const kernels::MaxSimQuery packed(kernels::BestProfile(), query, width_);
      const double sum = packed.Score(vectors[queries + document]);
      const double count = mean ? static_cast<double>(packed.vectors()) : 1;
      EXPECT_EQ(expected[document], static_cast<float>(sum / count));
    }
  }
}

TEST(SparseTermsTest, AnIdHasTheLargestWeightOfItsTokens) {
  const std::vector<int32_t> tokens = {5, 9, 2, 5, 7, 9};
  const std::vector<float> weights = {0.5f, 2, 1, 0.75f, 0, 3};
  std::vector<int32_t> ids(6, -1);
  std::vector<float> found(6);
  const std::vector<int32_t> without = {9};
  EXPECT_EQ(TakeHeaviestTokens(tokens, weights, without, ids, found), 2);
  EXPECT_EQ(ids[0], 2);
  EXPECT_EQ(ids[1], 5);
  EXPECT_EQ(found[1], 0.75f);
  EXPECT_EQ(
      TakeHeaviestTokens(tokens, weights, {}, std::span(ids).first(1), std::span(found).first(1)),
      1);
  EXPECT_EQ(ids[0], 9);
  EXPECT_EQ(found[0], 3);
}

}  // namespace
}  // namespace sluice
