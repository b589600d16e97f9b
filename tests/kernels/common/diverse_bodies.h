// Test bodies of diverse selection that every device must pass.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/diversity.h"
#include "kernels/reference/diverse.h"
#include "tests/kernels/common/values.h"

namespace sluice::kernels {

// Candidates by descending score.
struct DiverseCase {
  std::vector<float> scores{};
  std::vector<float> vectors{};  // [scores.size(), width]; all values are exact in bfloat16
  int32_t width = 0;
  float diversity = 0;
  int32_t count = 0;

  int32_t pool() const { return static_cast<int32_t>(scores.size()); }
  std::vector<int32_t> Reference() const {
    return reference::ChooseDiverse(ToDouble(scores), ToDouble(vectors), width, diversity, count);
  }
};

// Some candidates have equal scores, equal vectors, no score, or a vector of zeros.
inline DiverseCase RandomDiverseCase(std::mt19937_64& random, int32_t pool, int32_t width,
                                     float diversity, int32_t count) {
  DiverseCase of = {.width = width, .diversity = diversity, .count = count};
  of.scores = RandomValues<float>(random, pool, 4.0f);
  for (const BFloat16 value : RandomValues<BFloat16>(random, int64_t{pool} * width)) {
    of.vectors.push_back(cuda::Widen(value));
  }
  for (int32_t i = 0; i < pool; ++i) {
    float* const vector = of.vectors.data() + int64_t{i} * width;
    if (i % 7 == 3) of.scores[i] = std::round(of.scores[i]);
    if (i % 41 == 40) of.scores[i] = -kInfinity;
    if (i % 11 == 10) std::copy_n(vector - width, width, vector);
    if (i % 37 == 36) std::fill_n(vector, width, 0.0f);
  }
  std::sort(of.scores.begin(), of.scores.end(), std::greater<>());
  return of;
}

// `run` returns the indices of the chosen candidates in each case.
template <typename Run>
void ExpectDiverseChoicesEqualReference(const Run& run, std::mt19937_64& random) {
  std::vector<DiverseCase> cases;
  for (const float diversity : {0.01f, 0.5f, 0.97f, 1.0f}) {
    cases.push_back(RandomDiverseCase(random, 1, 5, diversity, 1));
    cases.push_back(RandomDiverseCase(random, 30, 2, diversity, 30));  // more than dimensions
    cases.push_back(RandomDiverseCase(random, kMaxDiversePool, 33, diversity, 20));
    for (int trial = 0; trial < 20; ++trial) {
      const int32_t pool = RandomInt(random, 1, 90);
      cases.push_back(RandomDiverseCase(random, pool, RandomInt(random, 1, 80), diversity,
                                        RandomInt(random, 1, std::min(pool, 16))));
    }
  }
  const std::vector<std::vector<int32_t>> chosen = run(cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(chosen[i], cases[i].Reference())
        << cases[i].count << " of " << cases[i].pool() << " vectors of " << cases[i].width
        << " at diversity " << cases[i].diversity;
  }
}

template <typename Run>
void ExpectNoDiversityKeepsTheOrder(const Run& run, std::mt19937_64& random) {
  const DiverseCase of = RandomDiverseCase(random, 60, 8, 0.0f, 20);
  std::vector<int32_t> best(20);
  std::iota(best.begin(), best.end(), 0);
  EXPECT_EQ(run({of}).front(), best);
}

// Two candidates are equal and one differs. Expects that the different one is the second choice.
template <typename Run>
void ExpectTheLikeOfAChoiceComesLast(const Run& run) {
  const DiverseCase of = {
      .scores = {9, 8, -9}, .vectors = {1, 2, 2, 4, 2, -1}, .width = 2, .diversity = 1, .count = 3};
  EXPECT_EQ(run({of}).front(), (std::vector<int32_t>{0, 2, 1}));
}

}  // namespace sluice::kernels
