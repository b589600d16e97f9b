// Mixture of experts: the choice of experts, the copies of rows and the weighted sums.
#include "kernels/cpu/route.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/reference/route.h"
#include "tests/kernels/cpu/op_test.h"
#include "tests/support/invariance.h"

namespace sluice::kernels {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Memory for routes.
struct RoomForRoutes {
  explicit RoomForRoutes(const RouteSizes& sizes)
      : bytes(Routes::Bytes(sizes) + 1, std::byte{0xFF}), routes(sizes, bytes.data()) {}

  std::vector<std::byte> bytes;
  Routes routes;
};

class RouteTest : public OpTest {};

// Returns the expert of each copy of a row, by the groups.
std::vector<int32_t> ExpertsOf(const Routes& routes) {
  std::vector<int32_t> experts;
  for (int64_t i = 0; i < routes.sizes.rows * routes.sizes.chosen; ++i) {
    for (int64_t e = 0; e < routes.sizes.experts; ++e) {
      const RowGroup& group = routes.groups[e];
      const int32_t place = routes.places[i] - group.first_row;
      if (place >= 0 && place < group.count) experts.push_back(group.matrix);
    }
  }
  return experts;
}

TEST_P(RouteTest, ChoosesTheExpertsOfTheReference) {
  const uint64_t seed = 71;
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 60; ++trial) {
    SCOPED_TRACE(trial);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
    const int64_t experts = 1 + below(trial % 2 == 0 ? 9 : 130), rows = below(40);
    const int64_t chosen = 1 + below(std::min<int64_t>(experts, 12));
    const RouteSizes sizes = {.rows = rows, .experts = experts, .chosen = chosen};
    std::vector<float> logits = RandomFloats(random, rows * experts);
    if (trial % 3 == 0) {  // many equal logits
      for (float& value : logits) value = static_cast<float>(static_cast<int>(value));
    }
    const auto softmax = static_cast<RouteSoftmax>(below(2));
    RoomForRoutes room(sizes);
    Route(Two(), logits.data(), softmax, room.routes);
    const reference::Routes expected = reference::Route(
        std::vector<double>(logits.begin(), logits.end()), experts, chosen, softmax);
    ASSERT_EQ(ExpertsOf(room.routes), expected.experts);
    for (int64_t i = 0; i < rows * chosen; ++i) {
      ASSERT_NEAR(room.routes.weights[i], expected.weights[i], 2e-6);
    }
    // The groups follow one another, and the rows of a group ascend.
    int32_t next = 0;
    for (int64_t e = 0; e < experts; ++e) {
      ASSERT_EQ(room.routes.groups[e].matrix, e);
      ASSERT_EQ(room.routes.groups[e].first_row, next);
      next += room.routes.groups[e].count;
    }
    ASSERT_EQ(next, rows * chosen);
    std::vector<int32_t> last(experts, -1);
    for (int64_t i = 0; i < rows * chosen; ++i) {
      int32_t& before = last[expected.experts[i]];
      ASSERT_GT(room.routes.places[i], before);
      before = room.routes.places[i];
    }
  }
}

TEST_P(RouteTest, TheLowerExpertWinsATie) {
  const std::vector<float> logits = {1, 2, 1, 2, 1, 0};
  RoomForRoutes room({.rows = 1, .experts = 6, .chosen = 3});
  Route(One(), logits.data(), RouteSoftmax::kOfChosen, room.routes);
  EXPECT_EQ(ExpertsOf(room.routes), (std::vector<int32_t>{0, 1, 3}));
  EXPECT_FLOAT_EQ(room.routes.weights[0] + room.routes.weights[1] + room.routes.weights[2], 1);
}

// A broken row must not write outside of its memory or change another row.
TEST_P(RouteTest, ARowWithNaNStaysWithinItsExperts) {
  const std::vector<float> logits = {kNaN, 1, kNaN, 2, 5, 3, 4, 1};
  RoomForRoutes room({.rows = 2, .experts = 4, .chosen = 2});
  Route(Two(), logits.data(), RouteSoftmax::kOfAll, room.routes);
  EXPECT_EQ(ExpertsOf(room.routes).size(), 4u);
  RoomForRoutes other({.rows = 1, .experts = 4, .chosen = 2});
  Route(Two(), logits.data() + 4, RouteSoftmax::kOfAll, other.routes);
  EXPECT_TRUE(std::equal(room.routes.weights + 2, room.routes.weights + 4, other.routes.weights));
}

// A layer of experts as a step computes it: the choice, the copies, a product for each expert and
// the weighted sum.
TEST_P(RouteTest, ARowHasTheSameBitsWithAnyOtherRows) {
  constexpr int64_t kExperts = 5, kChosen = 2, kDim = 70;
  std::mt19937_64 random(72);
  const std::vector<float> x = RandomFloats(random, 70 * kDim),
                           logits = RandomFloats(random, 70 * kExperts),
                           bias = RandomFloats(random, kDim),
                           weights = RandomFloats(random, kExperts * kDim * kDim);
  const PackedWeights packed = PackedWeights::Pack(
      Two(), {weights.data(), DType::kF32, kExperts, kDim, kDim, /*transposed=*/true});
  EXPECT_TRUE(RowsAreInvariant([&](std::span<const int32_t> rows) {
    std::vector<float> in, of_rows;
    for (const int32_t row : rows) {
      in.insert(in.end(), &x[row * kDim], &x[row * kDim] + kDim);
      of_rows.insert(of_rows.end(), &logits[row * kExperts], &logits[row * kExperts] + kExperts);
    }
    const RouteSizes sizes = {std::ssize(rows), kExperts, kChosen};
    RoomForRoutes room(sizes);
    Route(Two(), of_rows.data(), RouteSoftmax::kOfAll, room.routes);
    std::vector<float> copies(rows.size() * kChosen * kDim, kNaN), products = copies, out = in;
    CopyToPlaces(Two(), room.routes, in.data(), kDim, copies.data());
    GroupedGemm(Two(), packed, {room.routes.groups, kExperts},
                {copies.data(), kDim, nullptr, 0, products.data(), kDim, false});
    Combine(Two(), room.routes,
            {.x = products.data(),
             .bias = bias.data(),
             .dim = kDim,
             .accumulate = true,
             .out = out.data()});
    return out;
  }));
}

TEST_P(RouteTest, CombineAddsTheExpertsInAscendingOrder) {
  constexpr int64_t kDim = 1100;
  std::mt19937_64 random(73);
  const RouteSizes sizes = {.rows = 3, .experts = 6, .chosen = 3};
  const std::vector<float> logits = RandomFloats(random, sizes.rows * sizes.experts),
                           x = RandomFloats(random, sizes.rows * sizes.chosen * kDim),
                           bias = RandomFloats(random, kDim);
  RoomForRoutes room(sizes);
  Route(One(), logits.data(), RouteSoftmax::kOfChosen, room.routes);
  for (const bool accumulate : {false, true}) {
    for (const bool biased : {false, true}) {
      const std::vector<float> before = RandomFloats(random, sizes.rows * kDim);
      std::vector<float> out = before;
      Combine(Two(), room.routes,
              {.x = x.data(),
               .bias = biased ? bias.data() : nullptr,
               .dim = kDim,
               .accumulate = accumulate,
               .out = out.data()});
      for (int64_t i = 0; i < sizes.rows * kDim; ++i) {
        const int64_t first = i / kDim * sizes.chosen;
        float sum = 0;
        for (int64_t c = first; c < first + sizes.chosen; ++c) {
          const float product = room.routes.weights[c] * x[room.routes.places[c] * kDim + i % kDim];
          sum = c == first ? product : sum + product;
        }
        if (biased) sum = sum + bias[i % kDim];
        if (accumulate) sum = sum + before[i];
        ASSERT_EQ(out[i], sum) << i;
      }
    }
  }
}

SLUICE_EVERY_F32_PROFILE(RouteTest);

}  // namespace
}  // namespace sluice::kernels
