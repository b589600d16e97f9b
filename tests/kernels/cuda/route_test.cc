// Mixture of experts: the choice of experts, the tiles and places of the copies of rows, and the
// weighted sums.
#include "kernels/cuda/route.h"

#include <numeric>

#include "kernels/cuda/projection.h"
#include "kernels/reference/linear.h"
#include "kernels/reference/route.h"
#include "tests/kernels/cuda/op_test.h"
#include "tests/kernels/cuda/packed_weights.h"

namespace sluice::kernels::cuda {
namespace {

// The routes of a step, on the host.
struct HostRoutes {
  RouteCounts counts;
  std::vector<int32_t> choices, places;
  std::vector<float> weights;
  std::vector<RowGroup> tiles;
};

class RouteTest : public OpTest {
 protected:
  Routes RoomFor(int32_t max_rows, int32_t experts, int32_t chosen) {
    const int64_t bytes = Routes::Bytes(max_rows, experts, chosen);
    return Routes::At(lab_.Room<int32_t>(bytes / sizeof(int32_t)), max_rows, experts, chosen);
  }
  HostRoutes Get(const Routes& routes, int32_t rows) {
    HostRoutes host;
    host.counts = lab_.Get(routes.counts, 1).front();
    host.choices = lab_.Get(routes.choices, rows * routes.chosen);
    host.places = lab_.Get(routes.places, rows * routes.chosen);
    host.weights = lab_.Get(routes.weights, rows * routes.chosen);
    host.tiles = lab_.Get(routes.tiles, host.counts.tiles);
    return host;
  }
  HostRoutes RouteOf(const std::vector<float>& logits, int32_t experts, int32_t chosen,
                     RouteSoftmax softmax, int32_t processors = 0) {
    const auto rows = static_cast<int32_t>(logits.size() / experts);
    const LiveRows live = Live(rows);
    LimitedStream stream(lab_.stream(), kSharedBytesOfEveryGpu, processors);
    const Routes routes = RoomFor(live.capacity, experts, chosen);
    Route(stream, {lab_.Put(logits), softmax, live, routes});
    return Get(routes, rows);
  }
};

// Returns the tiles of the copies, and writes their places, as the host would make them.
std::vector<RowGroup> GroupOnHost(const std::vector<int32_t>& choices, int32_t experts,
                                  std::vector<int32_t>* places) {
  std::vector<RowGroup> groups;
  places->resize(choices.size());
  int32_t place = 0;
  for (int32_t e = 0; e < experts; ++e) {
    groups.push_back({e, place, 0});
    for (size_t i = 0; i < choices.size(); ++i) {
      if (choices[i] == e) (*places)[i] = place++;
    }
    groups.back().count = place - groups.back().first_row;
  }
  std::vector<RowGroup> tiles(MaxRowTiles(place, experts));
  tiles.resize(CutIntoRowTiles(groups, tiles.data()));
  return tiles;
}

std::vector<std::array<int32_t, 3>> AsArrays(const std::vector<RowGroup>& groups) {
  std::vector<std::array<int32_t, 3>> arrays;
  for (const RowGroup& group : groups)
    arrays.push_back({group.matrix, group.first_row, group.count});
  return arrays;
}

TEST_F(RouteTest, ChoicesWeightsPlacesAndTilesEqualTheReference) {
  struct Sizes {
    int32_t rows, experts, chosen;
  };
  // Rows beyond a tile and beyond the choices that a block takes at a time; more experts than
  // blocks; the limits of experts.
  std::vector<Sizes> cases = {{0, 4, 2},     {1, 1, 1},     {300, 3, 2}, {700, 40, 6},
                              {130, 128, 8}, {2, 4096, 64}, {9, 64, 64}};
  for (int trial = 0; trial < 20; ++trial) {
    const int32_t experts = RandomInt(random_, 1, trial % 2 == 0 ? 9 : 130);
    cases.push_back({RandomInt(random_, 0, 80), experts,
                     RandomInt(random_, 1, std::min<int32_t>(experts, 12))});
  }
  for (size_t trial = 0; trial < cases.size(); ++trial) {
    const auto [rows, experts, chosen] = cases[trial];
    SCOPED_TRACE(testing::Message()
                 << rows << " rows, " << chosen << " of " << experts << " experts, seed " << kSeed);
    std::vector<float> logits = RandomValues<float>(random_, int64_t{rows} * experts, 4.0f);
    if (trial % 3 == 0) {  // many equal logits, and both zeros
      for (float& value : logits) value = std::trunc(value);
    }
    for (const RouteSoftmax softmax : {RouteSoftmax::kOfAll, RouteSoftmax::kOfChosen}) {
      const HostRoutes got = RouteOf(logits, experts, chosen, softmax, trial % 2 == 0 ? 1 : 0);
      const reference::Routes expected =
          reference::Route(ToDouble(logits), experts, chosen, softmax);
      ASSERT_EQ(got.choices, expected.experts);
      EXPECT_TRUE(Within(1e-6, ToDouble(got.weights), expected.weights));
      std::vector<int32_t> places;
      const std::vector<RowGroup> tiles = GroupOnHost(got.choices, experts, &places);
      EXPECT_EQ(got.places, places);
      EXPECT_EQ(AsArrays(got.tiles), AsArrays(tiles));
      EXPECT_EQ(got.counts.copies, rows * chosen);
      lab_.Clear();
    }
  }
}

TEST_F(RouteTest, TheLowerExpertWinsATie) {
  EXPECT_EQ(RouteOf({2, 1, 0, 1, 1, 1}, 6, 3, RouteSoftmax::kOfAll).choices,
            (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(RouteOf({-0.0f, 0.0f, -1}, 3, 1, RouteSoftmax::kOfAll).choices,
            (std::vector<int32_t>{0}));
  EXPECT_EQ(RouteOf({-1, 0.0f, -0.0f, 0.0f}, 4, 2, RouteSoftmax::kOfAll).choices,
            (std::vector<int32_t>{1, 2}));
}

TEST_F(RouteTest, ALogitThatIsNotFiniteStaysInItsRow) {
  const int32_t experts = 40, chosen = 3;
  const auto own = RandomValues<float>(random_, experts);
  for (const RouteSoftmax softmax : {RouteSoftmax::kOfAll, RouteSoftmax::kOfChosen}) {
    const HostRoutes expected = RouteOf(own, experts, chosen, softmax);
    for (const float value : {kPoison, kInfinity, -kInfinity}) {
      for (const int32_t count : {1, experts}) {
        std::vector<float> logits = own, broken = own;
        std::fill_n(broken.begin() + experts - count, count, value);
        logits.insert(logits.begin(), broken.begin(), broken.end());
        const HostRoutes got = RouteOf(logits, experts, chosen, softmax);
        for (int32_t i = 0; i < chosen; ++i) {
          EXPECT_EQ(got.choices[chosen + i], expected.choices[i]);
          EXPECT_EQ(got.weights[chosen + i], expected.weights[i]);
          EXPECT_LT(i == 0 ? -1 : got.choices[i - 1], got.choices[i]);
          EXPECT_LT(got.choices[i], experts);
          EXPECT_TRUE(count < experts || !std::isfinite(got.weights[i]));
        }
        std::vector<int32_t> places;
        GroupOnHost(got.choices, experts, &places);
        EXPECT_EQ(got.places, places);
      }
    }
  }
}

TEST_F(RouteTest, OneCaptureServesAnyChoice) {
  const int32_t max_rows = 90, experts = 20, chosen = 4;
  float* const logits = lab_.Room<float>(max_rows * experts);
  auto* const count = lab_.Room<int32_t>(1);
  const Routes routes = RoomFor(max_rows, experts, chosen);
  lab_.stream().BeginCapture();
  Route(lab_.stream(), {logits, RouteSoftmax::kOfChosen, {count, max_rows}, routes});
  const auto graph = lab_.stream().EndCapture().value();
  for (const int32_t rows : {max_rows, 1, 0, 70}) {
    SCOPED_TRACE(testing::Message() << rows << " rows, seed " << kSeed);
    const auto values = RandomValues<float>(random_, rows * experts);
    lab_.Write<float>(logits, values);
    lab_.Write<int32_t>(count, std::vector<int32_t>{rows});
    lab_.stream().Run(*graph);
    const HostRoutes got = Get(routes, rows);
    EXPECT_EQ(got.choices,
              reference::Route(ToDouble(values), experts, chosen, RouteSoftmax::kOfChosen).experts);
    std::vector<int32_t> places;
    EXPECT_EQ(AsArrays(got.tiles), AsArrays(GroupOnHost(got.choices, experts, &places)));
    EXPECT_EQ(got.places, places);
  }
}

template <typename T>
class ExpertsTest : public RouteTest {
 protected:
  static constexpr int32_t kExperts = 5, kChosen = 2;

  // A layer of experts with one product, as a step computes it.
  struct Layer {
    int32_t in, out;
    std::vector<T> weight;  // [experts, in, out]
    std::vector<T> bias;
  };

  // Returns the outputs of the rows, added to `before` unless it is empty.
  std::vector<T> Run(const Layer& layer, const std::vector<T>& x, const std::vector<float>& logits,
                     const std::vector<T>& before, int32_t processors = 0) {
    const auto rows = static_cast<int32_t>(logits.size() / kExperts);
    const LiveRows live = this->Live(rows);
    LimitedStream stream(this->lab_.stream(), kSharedBytesOfEveryGpu, processors);
    const Routes routes = this->RoomFor(live.capacity, kExperts, kChosen);
    Route(stream, {this->lab_.Put(logits), RouteSoftmax::kOfChosen, live, routes});
    const int64_t copies = int64_t{routes.copies().capacity};
    T* const of_experts = this->lab_.template Room<T>(copies * layer.in);
    T* const results = this->lab_.template Room<T>(copies * layer.out);
    CopyToPlaces<T>(stream, {this->lab_.Put(x), layer.in, live, routes, of_experts});
    Project<T>(stream,
               {.x = of_experts,
                .weight = this->lab_.Put(Packed(layer.weight, kExperts, layer.in, layer.out)),
                .bias = nullptr,
                .bias_stride = 0,
                .k = layer.in,
                .n = layer.out,
                .tiles = routes.row_tiles(),
                .accumulate = false,
                .out = results});
    T* const out =
        before.empty() ? this->lab_.template Room<T>(rows * layer.out) : this->lab_.Put(before);
    Combine<T>(stream, {.x = results,
                        .bias = this->lab_.PutOrNull(layer.bias),
                        .dim = layer.out,
                        .accumulate = !before.empty(),
                        .rows = live,
                        .routes = routes,
                        .out = out});
    return this->lab_.Get(out, rows * layer.out);
  }
  Layer RandomLayer(int32_t in, int32_t out, bool bias) {
    return {in, out, RandomValues<T>(this->random_, int64_t{kExperts} * in * out),
            RandomValues<T>(this->random_, bias ? out : 0)};
  }
};
TYPED_TEST_SUITE(ExpertsTest, DTypes);

TYPED_TEST(ExpertsTest, ALayerEqualsTheReference) {
  using T = TypeParam;
  for (const auto& [rows, in, out] :
       {std::array{1, 8, 8}, {5, 33, 7}, {90, 40, 72}, {170, 24, 16}}) {
    for (const bool more : {false, true}) {  // a bias and the residual
      SCOPED_TRACE(testing::Message() << rows << " rows, " << in << " x " << out << ", more "
                                      << more << ", seed " << this->kSeed);
      const auto layer = this->RandomLayer(in, out, more);
      const auto x = RandomValues<T>(this->random_, rows * in);
      const auto logits = RandomValues<float>(this->random_, rows * this->kExperts, 3.0f);
      const auto before = RandomValues<T>(this->random_, more ? rows * out : 0);
      const reference::Routes routes = reference::Route(ToDouble(logits), this->kExperts,
                                                        this->kChosen, RouteSoftmax::kOfChosen);
      std::vector<double> copies;
      for (int32_t i = 0; i < rows * this->kChosen; ++i) {
        for (int32_t d = 0; d < in; ++d) copies.push_back(Widen(x[i / this->kChosen * in + d]));
      }
      const std::vector<double> results = reference::PositionWise(
          copies, routes.experts, ToDouble(layer.weight), {}, false, in, out);
      std::vector<double> expected(rows * out);
      for (int32_t i = 0; i < rows * this->kChosen * out; ++i) {
        const float rounded = Widen(Narrow<T>(static_cast<float>(results[i])));
        expected[i / out / this->kChosen * out + i % out] += routes.weights[i / out] * rounded;
      }
      for (int32_t i = 0; more && i < rows * out; ++i) {
        expected[i] += Widen(layer.bias[i % out]) + Widen(before[i]);
      }
      EXPECT_TRUE(Matches(Op::kGemm, this->Run(layer, x, logits, before), expected));
    }
    this->lab_.Clear();
  }
}

TYPED_TEST(ExpertsTest, ARowHasTheSameBitsInAnyBatch) {
  using T = TypeParam;
  constexpr int32_t kRows = 80, kIn = 24, kOut = 40;
  SCOPED_TRACE(testing::Message() << "seed " << this->kSeed);
  const auto layer = this->RandomLayer(kIn, kOut, true);
  const auto x = RandomValues<T>(this->random_, kRows * kIn);
  const auto logits = RandomValues<float>(this->random_, kRows * this->kExperts);
  const auto run = [&](const std::vector<int32_t>& rows, int32_t processors) {
    std::vector<T> in;
    std::vector<float> of_rows;
    for (const int32_t row : rows) {
      in.insert(in.end(), &x[row * kIn], &x[row * kIn] + kIn);
      of_rows.insert(of_rows.end(), &logits[row * this->kExperts],
                     &logits[row * this->kExperts] + this->kExperts);
    }
    return this->Run(layer, in, of_rows, {}, processors);
  };
  std::vector<int32_t> all(kRows);
  std::iota(all.begin(), all.end(), 0);
  const std::vector<T> together = run(all, 0);
  EXPECT_TRUE(SameBits(run(all, 1), together));
  std::shuffle(all.begin(), all.end(), this->random_);
  for (int32_t begin = 0, size = 1; begin + size <= kRows; begin += size, size = size * 2 + 1) {
    const std::vector<int32_t> some(all.begin() + begin, all.begin() + begin + size);
    const std::vector<T> got = run(some, 0);
    for (int32_t i = 0; i < size; ++i) {
      const T* const own = &got[i * kOut];
      const T* const expected = &together[some[i] * kOut];
      EXPECT_TRUE(SameBits<T>({own, own + kOut}, {expected, expected + kOut}))
          << "row " << some[i] << " at place " << i << " of " << size;
    }
    this->lab_.Clear();
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
