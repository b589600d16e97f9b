#include "kernels/cuda/hopper_projection.h"

#include <gmock/gmock.h>

#include <numeric>
#include <set>
#include <string>

#include "kernels/cuda/activation.h"
#include "kernels/reference/linear.h"
#include "tests/kernels/cuda/op_test.h"
#include "tests/kernels/cuda/packed_weights.h"
#include "tests/kernels/cuda/product_fixture.h"

namespace sluice::kernels::cuda {
namespace {

// tests/engine/cuda/selected_kernels_test.cc checks for all candidates that a row's bits do not
// depend on its batch.
class HopperProjectionTest : public OpTest {
 protected:
  using T = BFloat16;

  void SetUp() override {
    if (!Emulated() && lab_.device().info().architecture != "sm_90") {
      GTEST_SKIP() << "for compute capability 9.0";
    }
  }
  RowTiles TilesOf(const std::vector<RowGroup>& groups, int32_t rows) {
    std::vector<RowGroup> tiles(MaxRowTiles(rows, std::ssize(groups)));
    const int32_t count = CutIntoRowTiles(groups, tiles.data());
    return {lab_.Put(tiles), lab_.Put<int32_t>({count}), rows};
  }
};

TEST_F(HopperProjectionTest, EqualsTheReferenceForGroupsOfAllSizes) {
  struct Sizes {
    std::vector<int32_t> counts;
    int32_t k, n;
    bool accumulate;
  };
  for (const Sizes& sizes : {Sizes{{1}, 8, 8, false},
                             {{1, 2, 17}, 64, 128, false},
                             {{64, 65, 3}, 40, 136, true},
                             {{70}, 328, 72, false}}) {
    const auto& [counts, k, n, accumulate] = sizes;
    SCOPED_TRACE(testing::Message()
                 << counts.size() << " groups, k " << k << ", n " << n << ", seed " << kSeed);
    std::vector<RowGroup> groups;
    std::vector<int32_t> positions;
    for (const int32_t count : counts) {
      const auto position = static_cast<int32_t>(2 * groups.size());
      groups.push_back({position, static_cast<int32_t>(positions.size()), count});
      positions.insert(positions.end(), static_cast<size_t>(count), position);
    }
    const auto rows = static_cast<int32_t>(positions.size());
    const int64_t matrices = positions.back() + 1;
    const auto x = RandomValues<T>(random_, rows * k);
    const auto weight = RandomValues<T>(random_, matrices * k * n);
    const auto bias = RandomValues<T>(random_, matrices * n);
    const auto before = RandomValues<T>(random_, rows * n);
    T* const out = accumulate ? lab_.Put(before) : lab_.Room<T>(before.size());
    ProjectOnHopper(lab_.stream(), {.x = lab_.Put(x),
                                    .weight = lab_.Put(PackedForWarpgroups(weight, matrices, k, n)),
                                    .bias = lab_.Put(bias),
                                    .bias_stride = n,
                                    .k = k,
                                    .n = n,
                                    .tiles = TilesOf(groups, rows + 5),
                                    .accumulate = accumulate,
                                    .out = out});
    std::vector<double> expected =
        reference::PositionWise(ToDouble(x), positions, ToDouble(weight), ToDouble(bias),
                                /*position_bias=*/true, k, n);
    for (size_t i = 0; accumulate && i < expected.size(); ++i) expected[i] += Widen(before[i]);
    EXPECT_TRUE(Matches(Op::kGemm, lab_.Get(out, before.size()), expected));
    lab_.Clear();
  }
}

// With few processors large tiles are chosen, with many small ones.
TEST_F(HopperProjectionTest, TilesOfAllSizesHaveTheSameBits) {
  const int32_t k = 136, n = 264, most = 200;
  const auto x = RandomValues<T>(random_, most * k);
  const auto weight = RandomValues<T>(random_, k * n), bias = RandomValues<T>(random_, n);
  const T* const packed = lab_.Put(PackedForWarpgroups(weight, 1, k, n));
  const T *const x_there = lab_.Put(x), *const bias_there = lab_.Put(bias);
  const std::vector<double> expected = reference::PositionWise(
      ToDouble(x), std::vector<int32_t>(most, 0), ToDouble(weight), ToDouble(bias), false, k, n);
  std::set<std::string> kernels;
  std::vector<T> first;
  for (const int32_t rows : {most, 65, 17, 1}) {
    for (const int32_t processors : {1, 6, 16, 256}) {
      StreamOfProcessors stream(lab_.stream(), processors);
      T* const out = lab_.Room<T>(rows * n);
      ProjectOnHopper(stream, {.x = x_there,
                               .weight = packed,
                               .bias = bias_there,
                               .bias_stride = 0,
                               .k = k,
                               .n = n,
                               .tiles = TilesOn(lab_, {{0, 0, rows}}, rows),
                               .accumulate = false,
                               .out = out});
      const std::vector<T> got = lab_.Get(out, rows * n);
      if (first.empty()) {
        EXPECT_TRUE(Matches(Op::kGemm, got, expected));
        first = got;
      }
      EXPECT_TRUE(SameBits(got, {first.begin(), first.begin() + rows * n}))
          << rows << " rows by " << stream.kernel() << ", seed " << kSeed;
      kernels.insert(stream.kernel());
    }
  }
  EXPECT_THAT(kernels,
              testing::UnorderedElementsAre("HopperProjectionLarge", "HopperProjectionMedium",
                                            "HopperProjectionSmall", "HopperProjectionTiny"));
}

TEST_F(HopperProjectionTest, AFusedActivationHasTheBitsOfTheActivationKernel) {
  const int32_t k = 24, n = 136, rows = 5;
  for (int kind = 0; kind < kActivations; ++kind) {
    for (const bool gated : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << "activation " << kind << ", gated " << gated << ", seed " << kSeed);
      auto x = RandomValues<T>(random_, rows * k, 4.0f);
      x[0] = Narrow<T>(std::numeric_limits<float>::quiet_NaN());
      T* const out = lab_.Room<T>(rows * n);
      ProjectionArgs<T> args = {
          .x = lab_.Put(x),
          .weight = lab_.Put(PackedForWarpgroups(RandomValues<T>(random_, k * n), 1, k, n)),
          .bias = nullptr,
          .bias_stride = 0,
          .k = k,
          .n = n,
          .tiles = TilesOf({{0, 0, rows}}, rows),
          .accumulate = false,
          .out = out};
      const T* const gate = gated ? lab_.Put(RandomValues<T>(random_, rows * n, 4.0f)) : nullptr;
      ProjectOnHopper(lab_.stream(), args);
      Activate<T>(lab_.stream(), {.activation = static_cast<Activation>(kind),
                                  .in = gated ? gate : out,
                                  .up = gated ? out : nullptr,
                                  .dim = n,
                                  .rows = Live(rows),
                                  .out = out});
      const std::vector<T> expected = lab_.Get(out, rows * n);
      args.activate = true;
      args.activation = static_cast<Activation>(kind);
      args.gate = gate;
      ProjectOnHopper(lab_.stream(), args);
      EXPECT_TRUE(SameBits(lab_.Get(out, rows * n), expected));
      EXPECT_TRUE(std::isnan(Widen(expected[0])));
      lab_.Clear();
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
