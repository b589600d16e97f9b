// MaxSim equals the sum of maxima in double, with the same bits for every instruction set.
#include "kernels/cpu/max_sim.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

namespace sluice::kernels {
namespace {

std::vector<float> UnitVectors(std::mt19937_64& random, int64_t count, int64_t width) {
  std::normal_distribution<float> normal;
  std::vector<float> vectors(count * width);
  for (float& value : vectors) value = normal(random);
  for (int64_t i = 0; i < count; ++i) {
    const std::span<float> vector = std::span(vectors).subspan(i * width, width);
    double squares = 0;
    for (const float value : vector) squares += double{value} * value;
    for (float& value : vector) value = static_cast<float>(value / std::sqrt(squares));
  }
  return vectors;
}

double Reference(std::span<const float> query, std::span<const float> document, int64_t width) {
  double sum = 0;
  for (size_t q = 0; q < query.size(); q += width) {
    double most = -std::numeric_limits<double>::infinity();
    for (size_t d = 0; d < document.size(); d += width) {
      double product = 0;
      for (int64_t i = 0; i < width; ++i) product += double{query[q + i]} * document[d + i];
      most = std::max(most, product);
    }
    sum += most;
  }
  return sum;
}

TEST(MaxSimTest, EqualsTheReferenceWithTheSameBitsForEveryInstructionSet) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 60; ++trial) {
    const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
    const int64_t width = 1 + below(trial % 2 == 0 ? 140 : 20);
    const std::vector<float> query = UnitVectors(random, 1 + below(70), width);
    const std::vector<float> document = UnitVectors(random, 1 + below(40), width);
    const double expected = Reference(query, document, width);
    const double portable = MaxSimQuery(Profile::kPortableF32, query, width).Score(document);
    EXPECT_NEAR(portable, expected, 1e-6 * static_cast<double>(query.size()) / width + 1e-6);
    for (const Profile profile : kProfiles) {
      if (!ProfileSupported(profile)) continue;
      EXPECT_EQ(std::bit_cast<uint64_t>(MaxSimQuery(profile, query, width).Score(document)),
                std::bit_cast<uint64_t>(portable))
          << ProfileName(profile) << ", width " << width;
    }
  }
}

TEST(MaxSimTest, NothingHasTheScoreZero) {
  const std::vector<float> vectors = {0.5f, -0.5f};
  EXPECT_EQ(MaxSimQuery(Profile::kPortableF32, vectors, 2).Score({}), 0);
  EXPECT_EQ(MaxSimQuery(Profile::kPortableF32, {}, 2).Score(vectors), 0);
}

TEST(MaxSimTest, MaximaMayBeNegative) {
  const std::vector<float> query = {1, 0}, document = {-1, 0, -0.25f, 0};
  EXPECT_EQ(MaxSimQuery(Profile::kPortableF32, query, 2).Score(document), -0.25);
}

}  // namespace
}  // namespace sluice::kernels
