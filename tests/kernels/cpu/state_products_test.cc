// Products with states equal a sum in the documented order, bit for bit, for every instruction set.
#include "kernels/cpu/state_products.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <span>
#include <vector>

namespace sluice::kernels {
namespace {

double InDocumentedOrder(std::span<const float> row, const double* state) {
  double lanes[8] = {};
  for (size_t i = 0; i < row.size(); ++i) {
    const volatile double product = double{row[i]} * state[i];  // rounded
    lanes[i % 8] += product;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

TEST(StateProductsTest, HasTheBitsOfTheDocumentedOrderWithEveryInstructionSet) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  for (int trial = 0; trial < 200; ++trial) {
    const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
    const int64_t width = below(trial % 2 == 0 ? 20 : 530), count = below(20);
    const int64_t stride = width + below(3);
    std::vector<float> row(width);
    for (float& value : row) value = static_cast<float>(normal(random));
    std::vector<double> states(count * stride), before(count);
    for (double& value : states) value = normal(random);  // with more digits than a float
    for (double& value : before) value = normal(random);
    for (const Profile profile : kProfiles) {
      if (!ProfileSupported(profile)) continue;
      std::vector<double> sums = before;
      AddStateProducts(profile, row, states.data(), stride, sums);
      for (int64_t i = 0; i < count; ++i) {
        const double expected = before[i] + InDocumentedOrder(row, states.data() + i * stride);
        ASSERT_EQ(std::bit_cast<uint64_t>(sums[i]), std::bit_cast<uint64_t>(expected))
            << ProfileName(profile) << ", width " << width << ", state " << i << " of " << count;
      }
    }
  }
}

TEST(StateProductsTest, AValueThatIsNotFiniteChangesOnlyItsOwnState) {
  const std::vector<float> row(19, 0.5f);
  std::vector<double> states(5 * 19, 2.0);
  states[2 * 19 + 18] = INFINITY;
  std::vector<double> sums(5, 1.0);
  AddStateProducts(BestProfile(), row, states.data(), 19, sums);
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(sums[i], i == 2 ? INFINITY : 20.0) << i;
}

}  // namespace
}  // namespace sluice::kernels
