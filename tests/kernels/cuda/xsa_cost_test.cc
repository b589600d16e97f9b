// The standalone form of XSA reads a value and computes its norm once for all query heads of a KV
// head.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <numeric>
#include <random>

#include "engine/cuda/emulator/simt_device.h"
#include "kernels/cuda/xsa.h"
#include "kernels/simt/costs.h"
#include "tests/kernels/common/values.h"
#include "tests/support/device_lab.h"

namespace sluice::simt {
namespace {

using kernels::cuda::BFloat16;

struct Sizes {
  int32_t rows, kv_heads, head_dim;
  int32_t team;  // lanes of a head
};

struct Costs {
  int64_t bytes;     // of global memory
  int64_t shuffles;  // instructions of warps that are not accesses, and a constant
};

template <typename T>
Costs CostsOf(const Sizes& sizes, int32_t group, bool diagnostics) {
  namespace cuda = kernels::cuda;
  DeviceLab lab(MakeSimtDevice({.seed = 1, .processors = 132}));
  std::mt19937_64 random(1);
  const int32_t heads = sizes.rows * sizes.kv_heads, q_heads = sizes.kv_heads * group;
  const auto y = kernels::RandomValues<T>(random, heads * group * sizes.head_dim);
  const cuda::ExcludeSelfArgs<T> args = {
      .y = lab.Put(y),
      .v = lab.Put(kernels::RandomValues<T>(random, heads * sizes.head_dim)),
      .q_heads = q_heads,
      .kv_heads = sizes.kv_heads,
      .head_dim = sizes.head_dim,
      .xsa = {.form = kernels::XsaForm::kNorm,
              .cos_sim = diagnostics ? lab.Room<float>(heads * group) : nullptr},
      .rows = {lab.Put<int32_t>({sizes.rows}), sizes.rows},
      .out = lab.Room<T>(y.size())};
  const CostMeter meter;
  cuda::ExcludeSelf(lab.stream(), args);
  EXPECT_TRUE(lab.Finish().ok());
  const LaunchCosts& costs = meter.launches().at(0);
  const auto& widths = costs.widths;
  return {costs.bytes,
          costs.instructions - std::accumulate(widths.begin(), widths.end(), int64_t{0})};
}

template <typename T>
class ExcludeSelfCostTest : public testing::Test {};
using DTypes = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(ExcludeSelfCostTest, DTypes);

constexpr Sizes kSizes[] = {{16, 2, 64, 8}, {16, 2, 128, 16}, {8, 4, 256, 32}, {8, 4, 63, 8}};
constexpr int32_t kGroup = 5;

// A further query head reads its y and writes its output, but does not read v again.
TYPED_TEST(ExcludeSelfCostTest, ReadsAValueOncePerKvHead) {
  using T = TypeParam;
  for (const Sizes& sizes : kSizes) {
    const int64_t further =
        CostsOf<T>(sizes, kGroup, false).bytes - CostsOf<T>(sizes, 1, false).bytes;
    const int64_t heads = int64_t{sizes.rows} * sizes.kv_heads * (kGroup - 1);
    EXPECT_EQ(further, heads * 2 * sizes.head_dim * static_cast<int64_t>(sizeof(T)))
        << "heads of " << sizes.head_dim;
  }
}

// A further query head reduces y . v, and with diagnostics y . y, but not v . v.
TYPED_TEST(ExcludeSelfCostTest, ComputesANormOncePerKvHead) {
  for (const Sizes& sizes : kSizes) {
    for (const bool diagnostics : {false, true}) {
      const int64_t further = CostsOf<TypeParam>(sizes, kGroup, diagnostics).shuffles -
                              CostsOf<TypeParam>(sizes, 1, diagnostics).shuffles;
      const int64_t warps = int64_t{sizes.rows} * sizes.kv_heads * sizes.team / 32;
      const int64_t reduction = std::bit_width(static_cast<uint32_t>(sizes.team)) - 1;
      EXPECT_EQ(further, warps * (kGroup - 1) * reduction * (diagnostics ? 2 : 1))
          << "heads of " << sizes.head_dim << ", diagnostics " << diagnostics;
    }
  }
}

}  // namespace
}  // namespace sluice::simt
