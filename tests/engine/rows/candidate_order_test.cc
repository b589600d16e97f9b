#include "engine/rows/candidate_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "kernels/reference/diverse.h"
#include "tests/support/checkpoint_writer.h"

namespace sluice::testing {
namespace {

constexpr uint64_t kSeed = 20261125;

// Returns the vector of an item: its scores of unit states.
std::vector<double> VectorOf(const Model& model, int32_t id) {
  std::vector<double> state(static_cast<size_t>(model.config.hidden_size)), vector;
  for (double& value : state) {
    value = 1;
    vector.push_back(model.items->Score(id, state));
    value = 0;
  }
  return vector;
}

// Candidates of -1 are not ordered. A candidate that appears twice has no diversity from itself.
TEST(CandidateOrderTest, EqualsTheReferenceChoiceByChoice) {
  const std::shared_ptr<const Model> model = RandomModel(TinyConfig(1), 5);
  std::mt19937_64 random(kSeed);
  SCOPED_TRACE(kSeed);
  std::uniform_real_distribution<float> uniform(-3, 3);
  for (const double diversity : {0.0, 0.5, 1.0}) {
    std::vector<int32_t> ids = {7, -1, 3, 12, 3, 20, -1, 41, 30};
    std::shuffle(ids.begin(), ids.end(), random);
    std::vector<float> scores(ids.size());
    for (float& score : scores) score = uniform(random);
    std::vector<int32_t> places;
    for (int32_t i = 0; i < std::ssize(ids); ++i) {
      if (ids[i] >= 0) places.push_back(i);
    }
    std::sort(places.begin(), places.end(),
              [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
    std::vector<double> sorted, vectors;
    for (const int32_t place : places) {
      sorted.push_back(scores[place]);
      const std::vector<double> vector = VectorOf(*model, ids[place]);
      vectors.insert(vectors.end(), vector.begin(), vector.end());
    }
    std::vector<int32_t> expected;
    for (const int32_t chosen : kernels::reference::ChooseDiverse(
             sorted, vectors, model->config.hidden_size, diversity, std::ssize(places))) {
      expected.push_back(places[chosen]);
    }
    expected.resize(ids.size(), -1);

    CandidateOrder order(ids, scores, diversity);
    EXPECT_EQ(order.left(), diversity == 0 ? 0 : std::ssize(places));
    for (int64_t left = order.left(); left > 0; --left) {
      EXPECT_EQ(order.left(), left);
      order.ChooseNext(*model->items);
    }
    std::vector<int32_t> written(ids.size(), 99);
    order.Write(written.data());
    EXPECT_EQ(written, expected) << "diversity " << diversity;
  }
}

TEST(CandidateOrderTest, NoCandidatesNeedNoChoice) {
  const std::vector<int32_t> ids = {-1, -1};
  const std::vector<float> scores = {-INFINITY, -INFINITY};
  const CandidateOrder order(ids, scores, 1);
  EXPECT_EQ(order.left(), 0);
  std::vector<int32_t> written(2, 99);
  order.Write(written.data());
  EXPECT_EQ(written, ids);
}

}  // namespace
}  // namespace sluice::testing
