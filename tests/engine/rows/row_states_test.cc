#include "engine/rows/row_states.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/fake_backend.h"
#include "tests/support/request_spec.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

constexpr int32_t kLength = 7;

Request RequestFor(uint32_t outputs, const Poolings& pooling, bool normalize = false) {
  Request request;
  Mutable(request.spec).model = FakeModel(FakeConfig());
  request.outputs = outputs;
  Mutable(request.spec).states.pooling = pooling;
  Mutable(request.spec).states.normalize = normalize;
  return request;
}

// Returns random states, [kLength, hidden_size].
std::vector<std::vector<float>> RandomStates(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> states(kLength, std::vector<float>(FakeConfig().hidden_size));
  for (auto& state : states) {
    for (float& value : state) value = normal(random);
  }
  return states;
}

using Wanted = std::vector<RowStates::Positions>;

Wanted WantedOf(const RowStates& row, int32_t begin, int32_t end) {
  Wanted wanted;
  row.AppendWanted(begin, end, &wanted);
  return wanted;
}

// Passes the states of the positions [begin, end) on, like a step that computes them.
void Feed(const std::vector<std::vector<float>>& states, int32_t begin, int32_t end,
          RowStates* row) {
  const Wanted wanted = WantedOf(*row, begin, end);
  std::vector<double> sums;
  for (const RowStates::Positions& positions : wanted) {
    const bool largest = positions.largest;
    std::vector<double> sum(states[0].size(), largest ? -INFINITY : 0);
    for (int32_t i = positions.first; i < positions.first + positions.count; ++i) {
      for (size_t j = 0; j < sum.size(); ++j) {
        sum[j] = largest ? std::max<double>(sum[j], states[i][j]) : sum[j] + states[i][j];
      }
    }
    sums.insert(sums.end(), sum.begin(), sum.end());
  }
  EXPECT_TRUE(row->Take(wanted, sums, Undivided));
}

std::vector<float> EmbeddingOf(RowStates* row, size_t poolings = 1) {
  Reply reply;
  reply.embedding.resize(FakeConfig().hidden_size * poolings);
  EXPECT_TRUE(row->Finish(0, &reply, Undivided));
  return reply.embedding;
}

std::vector<float> MeanOf(const std::vector<std::vector<float>>& states) {
  std::vector<float> mean;
  for (size_t i = 0; i < states[0].size(); ++i) {
    double sum = 0;
    for (const auto& state : states) sum += state[i];
    mean.push_back(static_cast<float>(sum / kLength));
  }
  return mean;
}

std::vector<float> MaxOf(const std::vector<std::vector<float>>& states) {
  std::vector<float> most = states[0];
  for (const auto& state : states) {
    for (size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], state[i]);
  }
  return most;
}

// Returns the sum of the states, each times its weight.
std::vector<float> SumOf(const std::vector<std::vector<float>>& states,
                         const std::function<double(size_t)>& weight) {
  std::vector<double> sum(states[0].size());
  for (size_t i = 0; i < states.size(); ++i) {
    for (size_t j = 0; j < sum.size(); ++j) sum[j] += weight(i) * states[i][j];
  }
  return {sum.begin(), sum.end()};
}

struct PoolingRow {
  const char* name;
  Pooling pooling;
  std::vector<float> expected;
};
class PoolingTable : public TableTest<PoolingRow> {};

TEST_P(PoolingTable, GivesTheEmbedding) {
  const Request request = RequestFor(kOutputEmbedding, row().pooling);
  RowStates states(request, kLength);
  EXPECT_EQ(states.OnlyLast(), row().pooling == Pooling::kLast);
  Feed(RandomStates(1), 0, kLength, &states);
  const std::vector<float> embedding = EmbeddingOf(&states);
  ASSERT_EQ(embedding.size(), row().expected.size());
  for (size_t i = 0; i < embedding.size(); ++i) {
    EXPECT_FLOAT_EQ(embedding[i], row().expected[i]);
  }
}

const PoolingRow kPoolingRows[] = {
    {.name = "TheMeanIsOfAllPositions",
     .pooling = Pooling::kMean,
     .expected = MeanOf(RandomStates(1))},
    {.name = "ClsIsTheFirstPosition", .pooling = Pooling::kCls, .expected = RandomStates(1)[0]},
    {.name = "LastIsTheLastPosition", .pooling = Pooling::kLast, .expected = RandomStates(1)[6]},
    {.name = "MaxIsTheLargestOfEachFeature",
     .pooling = Pooling::kMax,
     .expected = MaxOf(RandomStates(1))},
    {.name = "LaterPositionsWeighMore",
     .pooling = Pooling::kWeightedMean,
     .expected = SumOf(RandomStates(1), [](size_t i) { return (i + 1) / 28.0; })},
    {.name = "MeanSqrtLenIsASumOverTheRootOfTheLength",
     .pooling = Pooling::kMeanSqrtLen,
     .expected = SumOf(RandomStates(1), [](size_t) { return 1 / std::sqrt(7.0); })},
};
SLUICE_TABLE(PoolingTable, kPoolingRows);

TEST(RowStatesTest, ChunksAndRecomputationGiveTheSameBits) {
  const uint64_t seed = 77;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const auto states = RandomStates(2);
  for (int round = 0; round < 200; ++round) {
    Poolings poolings;
    poolings.all.resize(1 + random() % 4);
    for (Pooling& pooling : poolings.all) pooling = static_cast<Pooling>(random() % 6);
    {
      Request request = RequestFor(kOutputEmbedding, poolings);
      ModelConfig config = FakeConfig();
      config.serving.pooling = poolings;
      Mutable(request.spec).model = FakeModel(config);
      Mutable(request.spec).states.first_pooled = static_cast<int32_t>(random() % kLength);
      RowStates whole(request, kLength), cut(request, kLength);
      Feed(states, 0, kLength, &whole);
      int32_t at = 0;
      while (at < kLength) {
        if (random() % 3 == 0) at = 0;  // preempted and computed again completely
        const auto end = at + 1 + static_cast<int32_t>(random() % (kLength - at));
        Feed(states, at, end, &cut);
        at = end;
      }
      const size_t count = poolings.all.size();
      ASSERT_EQ(EmbeddingOf(&whole, count), EmbeddingOf(&cut, count));
    }
  }
}

TEST(RowStatesTest, ANormalizedEmbeddingHasLengthOneAndZeroStaysZero) {
  const Request request = RequestFor(kOutputEmbedding, Pooling::kMean, true);
  RowStates row(request, kLength);
  Feed(RandomStates(3), 0, kLength, &row);
  double squares = 0;
  for (const float value : EmbeddingOf(&row)) squares += double{value} * value;
  EXPECT_NEAR(squares, 1, 1e-6);
  RowStates zero(request, kLength);
  Feed(std::vector<std::vector<float>>(kLength, std::vector<float>(5)), 0, kLength, &zero);
  EXPECT_EQ(EmbeddingOf(&zero), std::vector<float>(5));
}

TEST(RowStatesTest, AStateThatIsNotFiniteIsRefused) {
  const Request request = RequestFor(kOutputEmbedding, Pooling::kMean);
  RowStates row(request, kLength);
  std::vector<double> sum(5, 1.0);
  sum[3] = INFINITY;
  EXPECT_FALSE(row.Take(Wanted{{0, kLength}}, sum, Undivided));
}

// Divides work among threads, in pieces that end in any order.
class Divided {
 public:
  explicit Divided(std::mt19937_64* random) : random_(*random) {}

  void operator()(int64_t n, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body) const {
    largest = std::max(largest, n);
    std::vector<std::pair<int64_t, int64_t>> pieces;
    for (int64_t at = 0; at < n;) {
      const int64_t count = std::min<int64_t>(
          1 + static_cast<int64_t>(random_() % static_cast<uint64_t>(grain)), n - at);
      pieces.emplace_back(at, at + count);
      at += count;
    }
    std::shuffle(pieces.begin(), pieces.end(), random_);
    std::vector<std::thread> threads;
    for (const auto& piece : pieces) {
      if (threads.size() < 4) {
        threads.emplace_back([&piece, body] { body(piece.first, piece.second); });
      } else {
        body(piece.first, piece.second);
      }
    }
    for (std::thread& thread : threads) thread.join();
  }

  mutable int64_t largest = 0;

 private:
  std::mt19937_64& random_;
};

TEST(RowStatesTest, ClassifiersRunOnSeveralThreadsWithTheSameBits) {
  constexpr uint64_t kSeed = 79;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  std::normal_distribution<double> normal;
  constexpr int32_t kTokens = 500;
  for (const char* name : {"distilbert_2", "camembert_3", "roberta_4", "gte_4"}) {
    SCOPED_TRACE(name);
    const auto model =
        *LoadModel(name, 1, absl::StrCat(SLUICE_SOURCE_DIR "/tests/goldens/families/", name));
    ASSERT_TRUE(model->classifier.has_value());
    Request request =
        RequestFor(kOutputTokenScores | kOutputScores | kOutputEmbedding, Pooling::kMean);
    Mutable(request.spec).model = model;
    Mutable(request.spec).lengths = {kTokens};
    std::vector<double> sums(kTokens * model->config.hidden_size);
    for (double& value : sums) value = static_cast<float>(normal(random));
    Divided divided(&random);
    const auto reply_of = [&](Divide divide) {
      RowStates states(request, kTokens);
      Reply reply;
      const int64_t labels = model->config.serving.classifier.labels;
      reply.token_scores.resize(kTokens * labels);
      reply.scores.resize(labels);
      reply.embedding.resize(EmbeddingSize(*request.spec));
      EXPECT_TRUE(states.Take(WantedOf(states, 0, kTokens), sums, divide));
      EXPECT_TRUE(states.Finish(0, &reply, divide));
      return reply;
    };
    const Reply alone = reply_of(Undivided), together = reply_of(divided);
    EXPECT_EQ(together.token_scores, alone.token_scores);
    EXPECT_EQ(together.scores, alone.scores);
    EXPECT_EQ(together.embedding, alone.embedding);
    EXPECT_EQ(divided.largest, kTokens) << "the tokens, and fewer rows of a matrix";
  }
}

// The device pools: a step that computes the whole prompt returns one vector for each pooling.
TEST(RowStatesTest, RequestsOneWholePromptSumAndTheMaxima) {
  Poolings poolings;
  poolings.all = {Pooling::kMean, Pooling::kMax, Pooling::kMeanSqrtLen};
  const Request request = RequestFor(kOutputEmbedding, poolings);
  EXPECT_EQ(WantedOf(RowStates(request, kLength), 0, kLength),
            (Wanted{{0, kLength}, {0, kLength, true}}));
  EXPECT_EQ(WantedOf(RowStates(request, kLength), 0, 2), (Wanted{{0, 1}, {1, 1}}));
}

TEST(RowStatesTest, RequestsEachPositionOfThePromptOnce) {
  const Request request = RequestFor(kOutputEmbedding, Pooling::kMean);
  RowStates row(request, kLength);
  const auto states = RandomStates(4);
  Feed(states, 0, 3, &row);
  EXPECT_EQ(WantedOf(row, 0, kLength), (Wanted{{3, 1}, {4, 1}, {5, 1}, {6, 1}}));
  EXPECT_EQ(WantedOf(row, 0, 4), (Wanted{{3, 1}}));
  Feed(states, 3, kLength, &row);
  EXPECT_EQ(WantedOf(row, 0, kLength), Wanted());
}

// A step has room for one sum per token and one per sequence.
TEST(RowStatesTest, RequestsAtMostOneMoreSumThanPositions) {
  constexpr uint64_t kSeed = 78;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 2000; ++round) {
    Poolings poolings;
    poolings.all.resize(1 + random() % 6);
    for (Pooling& pooling : poolings.all) pooling = static_cast<Pooling>(random() % 6);
    ModelConfig config = FakeConfig();
    config.serving.classifier.pooling = static_cast<Pooling>(random() % 3);
    Request request = RequestFor(kOutputEmbedding | kOutputScores | kOutputCandidates, poolings);
    Mutable(request.spec).model = FakeModel(config);
    const auto length = static_cast<int32_t>(1 + random() % 5);
    Mutable(request.spec).states.first_pooled = static_cast<int32_t>(random() % length);
    const RowStates row(request, length);
    ASSERT_LE(std::ssize(WantedOf(row, 0, length)), length + 1);
  }
}

struct WantedRow {
  const char* name;
  uint32_t outputs;
  Pooling embedding, classifier = Pooling::kCls;
  int32_t length = kLength;
  Wanted wanted;
};
class WantedTable : public TableTest<WantedRow> {};

TEST_P(WantedTable, OfAWholePrompt) {
  Request request = RequestFor(row().outputs, row().embedding);
  ModelConfig config = FakeConfig();
  config.serving.classifier.pooling = row().classifier;
  Mutable(request.spec).model = FakeModel(config);
  const RowStates states(request, row().length);
  EXPECT_EQ(WantedOf(states, 0, row().length), row().wanted);
}

const WantedRow kWantedRows[] = {
    {.name = "AMeanIsOneSum",
     .outputs = kOutputEmbedding,
     .embedding = Pooling::kMean,
     .wanted = {{0, kLength}}},
    {.name = "OnlyTheFirstState",
     .outputs = kOutputEmbedding,
     .embedding = Pooling::kCls,
     .wanted = {{0, 1}}},
    {.name = "OnlyTheLastState",
     .outputs = kOutputEmbedding,
     .embedding = Pooling::kLast,
     .wanted = {{kLength - 1, 1}}},
    {.name = "TwoMeansShareASum",
     .outputs = kOutputEmbedding | kOutputScores,
     .embedding = Pooling::kMean,
     .classifier = Pooling::kMean,
     .wanted = {{0, kLength}}},
    {.name = "AMeanTheFirstAndTheLast",
     .outputs = kOutputEmbedding | kOutputScores | kOutputCandidates,
     .embedding = Pooling::kMean,
     .wanted = {{0, kLength}, {0, 1}, {kLength - 1, 1}}},
    {.name = "OfTwoPositions",
     .outputs = kOutputEmbedding | kOutputScores | kOutputCandidates,
     .embedding = Pooling::kMean,
     .length = 2,
     .wanted = {{0, 2}, {0, 1}, {1, 1}}},
    {.name = "OneStateIsAllOfThem",
     .outputs = kOutputEmbedding | kOutputScores | kOutputCandidates,
     .embedding = Pooling::kMean,
     .length = 1,
     .wanted = {{0, 1}}},
};
SLUICE_TABLE(WantedTable, kWantedRows);

}  // namespace
}  // namespace sluice
