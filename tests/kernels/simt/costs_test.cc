// The counters of costs, on kernels with one planted fault each and on the same kernels without it.
#include "kernels/simt/costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "engine/cuda/emulator/simt_device.h"
#include "tests/kernels/simt/planted.h"
#include "tests/support/device_lab.h"

namespace sluice::kernels::cuda::planted {
namespace {

using simt::CostMeter;
using simt::LaunchCosts;
using testing::ElementsAre;

class CostsTest : public testing::TestWithParam<uint64_t> {
 protected:
  // Returns the costs of the one launch that `launch` makes.
  template <typename Launch>
  LaunchCosts CostsOf(Launch launch) {
    const CostMeter meter;
    launch(lab_.stream());
    EXPECT_EQ(lab_.Finish(), absl::OkStatus());
    EXPECT_EQ(meter.launches().size(), 1u);
    return meter.launches().empty() ? LaunchCosts() : meter.launches()[0];
  }
  template <typename T = float>
  T* Numbers(int n) {
    return lab_.Put(std::vector<T>(n, T{1}));
  }

  DeviceLab lab_{simt::MakeSimtDevice({.seed = GetParam()})};
};

TEST_P(CostsTest, NeighboursShareSectors) {
  float *in = Numbers(64), *out = lab_.Room<float>(64);
  const LaunchCosts costs = CostsOf([&](Stream& stream) { Gather(stream, in, 1, out); });
  EXPECT_EQ(costs.kernel, "Gather");
  EXPECT_EQ(costs.bytes, 2 * 64 * 4);
  EXPECT_EQ(costs.ideal_sectors, 16);
  EXPECT_EQ(costs.sectors, 16);
  EXPECT_THAT(costs.widths, ElementsAre(0, 0, 4, 0, 0));
  EXPECT_EQ(costs.instructions, 4);  // of each warp a read and a write
}

TEST_P(CostsTest, AStrideTouchesASectorEachLane) {
  float *in = Numbers(64 * 8), *out = lab_.Room<float>(64);
  const LaunchCosts costs = CostsOf([&](Stream& stream) { Gather(stream, in, 8, out); });
  EXPECT_EQ(costs.ideal_sectors, 16);
  EXPECT_EQ(costs.sectors, 8 * 8 + 8) << "8 times the ideal where it reads";
}

TEST_P(CostsTest, AnAddressThatIsNotAlignedTouchesAnotherSector) {
  float *in = Numbers(65), *out = lab_.Room<float>(64);
  const LaunchCosts costs = CostsOf([&](Stream& stream) { Gather(stream, in + 1, 1, out); });
  EXPECT_EQ(costs.sectors, costs.ideal_sectors + 2);
}

TEST_P(CostsTest, NarrowAndWideAccessesAreCountedSeparately) {
  auto *shorts = Numbers<uint16_t>(64), *out = lab_.Room<uint16_t>(64);
  const LaunchCosts narrow = CostsOf([&](Stream& stream) { MoveByHalves(stream, shorts, out); });
  EXPECT_THAT(narrow.widths, ElementsAre(0, 4, 0, 0, 0));
  EXPECT_EQ(narrow.sectors, 8);
  float *in = Numbers(128), *fours = lab_.Room<float>(128);
  const LaunchCosts wide = CostsOf([&](Stream& stream) { MoveByFours(stream, in, fours); });
  EXPECT_THAT(wide.widths, ElementsAre(0, 0, 0, 0, 2));
  EXPECT_EQ(wide.bytes, 2 * 128 * 4);
}

TEST_P(CostsTest, AStrideOfABankConflicts) {
  float *in = Numbers(32), *out = lab_.Room<float>(32);
  for (const auto& [stride, conflicts] : {std::pair(1, 0), {2, 2}, {31, 0}, {32, 2 * 31}}) {
    const LaunchCosts costs = CostsOf([&](Stream& stream) { Spread(stream, in, stride, out); });
    EXPECT_EQ(costs.conflicts, conflicts) << "stride " << stride;
    EXPECT_EQ(costs.wavefronts, 2 + conflicts);
  }
}

// Eight lanes pass at a time and use all 32 banks.
TEST_P(CostsTest, WideAccessesConflictWithinAQuarterOfAWarp) {
  float *in = Numbers(32), *out = lab_.Room<float>(32);
  for (const auto& [stride, conflicts] : {std::pair(1, 0), {2, 2}, {8, 2 * 7}}) {
    const LaunchCosts costs =
        CostsOf([&](Stream& stream) { SpreadByFours(stream, in, stride, out); });
    EXPECT_EQ(costs.conflicts, conflicts) << "stride " << stride;
  }
}

TEST_P(CostsTest, LanesThatReadOneWordDoNotConflict) {
  float *in = Numbers(32), *out = lab_.Room<float>(32);
  const LaunchCosts costs = CostsOf([&](Stream& stream) { Broadcast(stream, in, out); });
  EXPECT_EQ(costs.conflicts, 0);
  EXPECT_EQ(costs.wavefronts, 2);
}

TEST_P(CostsTest, AtomicsOnOneAddressAreCounted) {
  auto* counter = lab_.Put<int32_t>({0});
  const LaunchCosts costs = CostsOf([&](Stream& stream) { Count(stream, true, 3, counter); });
  EXPECT_EQ(costs.global_atomics.count, 3 * 64);
  EXPECT_EQ(costs.global_atomics.worst_in_warp, 32);
  EXPECT_EQ(costs.global_atomics.worst_in_launch, 3 * 64);
  EXPECT_EQ(costs.shared_atomics.count, 0);
}

TEST_P(CostsTest, AtomicsInSharedMemoryAreCountedForEachBlock) {
  auto* out = lab_.Put(std::vector<int32_t>(32));
  const LaunchCosts one = CostsOf([&](Stream& stream) { CountInShared(stream, 1, out); });
  EXPECT_EQ(one.shared_atomics.count, 2 * 64);
  EXPECT_EQ(one.shared_atomics.worst_in_warp, 32);
  EXPECT_EQ(one.shared_atomics.worst_in_launch, 64);
  EXPECT_EQ(one.global_atomics.worst_in_launch, 2);
  const LaunchCosts all = CostsOf([&](Stream& stream) { CountInShared(stream, 32, out); });
  EXPECT_EQ(all.shared_atomics.worst_in_warp, 1);
  EXPECT_EQ(all.shared_atomics.worst_in_launch, 2);
  EXPECT_EQ(all.global_atomics.count, 64);
}

TEST_P(CostsTest, WorkingBlocksExcludeBlocksWithoutWork) {
  float *in = Numbers(128), *out = lab_.Room<float>(128);
  const int32_t* n = lab_.Put<int32_t>({128});
  const LaunchCosts costs = CostsOf([&](Stream& stream) { AddCount(stream, in, n, 4, out); });
  EXPECT_EQ(costs.blocks, 4);
  EXPECT_EQ(costs.working_blocks, 2);
}

TEST_P(CostsTest, AnAsynchronousCopyIsOneInstruction) {
  float *in = Numbers(256), *out = lab_.Room<float>(256);
  const LaunchCosts costs =
      CostsOf([&](Stream& stream) { DoubleByCopies(stream, in, 250, Wait::kBeforeBarrier, out); });
  // Each of the 2 warps runs a copy, two commits, a wait and a barrier, and then reads shared
  // memory and writes 4 times.
  EXPECT_EQ(costs.instructions, 2 * (1 + 2 + 1 + 1 + 4 * 2));
  EXPECT_THAT(costs.widths, ElementsAre(0, 0, 8, 0, 2));
  EXPECT_EQ(costs.bytes, 250 * 4 + 256 * 4);
  EXPECT_EQ(costs.conflicts, 0);
  EXPECT_EQ(costs.wavefronts, 2 * (4 + 4));
}

TEST_P(CostsTest, MatrixProductsAreCounted) {
  auto *a = Numbers<uint16_t>(256), *b = Numbers<uint16_t>(128);
  auto* d = lab_.Room<float>(128);
  const LaunchCosts costs = CostsOf([&](Stream& stream) { Multiply(stream, a, b, d); });
  EXPECT_EQ(costs.products, 1);
  EXPECT_EQ(costs.instructions, 8 + 4 + 1 + 4);  // reads of a and b, the product, writes of d
  EXPECT_EQ(costs.busiest_warp.products, 1);
  EXPECT_EQ(costs.busiest_warp.global, 8 + 4 + 4);
  EXPECT_EQ(costs.busiest_warp.all(), costs.instructions);
}

TEST_P(CostsTest, TheBusiestWarpIsOneWarpOfOneBlock) {
  float *in = Numbers(256), *out = lab_.Room<float>(256);
  const LaunchCosts costs =
      CostsOf([&](Stream& stream) { DoubleByCopies(stream, in, 250, Wait::kBeforeBarrier, out); });
  EXPECT_EQ(costs.busiest_warp.all(), costs.instructions / 2) << "both warps do the same";
  EXPECT_EQ(costs.busiest_warp.global, 1 + 4);  // a copy, and writes
  EXPECT_EQ(costs.busiest_warp.shared, 4);
  EXPECT_EQ(costs.busiest_warp.others, 2 + 1 + 1);  // commits, a wait and a barrier

  // Two of four blocks are idle.
  const int32_t* n = lab_.Put<int32_t>({128});
  const LaunchCosts uneven = CostsOf([&](Stream& stream) { AddCount(stream, in, n, 4, out); });
  EXPECT_GT(uneven.busiest_warp.all() * 4 * 2, uneven.instructions);
  EXPECT_LE(uneven.busiest_warp.all() * 2 * 2, uneven.instructions);
}

TEST_P(CostsTest, CollectivesAreInstructions) {
  float *in = Numbers(128), *out = lab_.Room<float>(4);
  const LaunchCosts costs = CostsOf([&](Stream& stream) { WarpSums(stream, in, out); });
  EXPECT_EQ(costs.instructions, 4 * (1 + 5 + 1 + 1 + 1 + 1));
}

TEST(CostMeterTest, CountsOnlyWhileItLives) {
  DeviceLab lab(simt::MakeSimtDevice());
  auto* counter = lab.Put<int32_t>({0});
  const CostMeter outer;
  {
    const CostMeter inner;
    Count(lab.stream(), true, 1, counter);
    EXPECT_EQ(lab.Finish(), absl::OkStatus());
    EXPECT_EQ(inner.launches().size(), 1u);
  }
  EXPECT_EQ(outer.launches().size(), 0u);
  Count(lab.stream(), true, 1, counter);
  EXPECT_EQ(lab.Finish(), absl::OkStatus());
  EXPECT_EQ(outer.launches().size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CostsTest, testing::Values(1, 2, 3));

}  // namespace
}  // namespace sluice::kernels::cuda::planted
