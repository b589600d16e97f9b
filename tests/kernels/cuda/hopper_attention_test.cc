#include "kernels/cuda/hopper_attention.h"

#include "tests/kernels/cuda/attention_fixture.h"

namespace sluice::kernels::cuda {
namespace {

using reference::AttentionShape;

// tests/engine/cuda/selected_kernels_test.cc tries all candidates with other shapes.
class HopperAttentionTest : public OpTest {
 protected:
  using T = BFloat16;

  void SetUp() override {
    if (!Emulated() && lab_.device().info().architecture != "sm_90") {
      GTEST_SKIP() << "for compute capability 9.0";
    }
  }
  AttentionOutputs<T> Run(const AttentionShape& shape, const std::vector<SequenceCase<T>>& cases,
                          bool causal, const XsaCase& xsa) {
    return RunAttention<T>(lab_, random_, shape, cases, causal, xsa, device_, &AttentionOnHopper);
  }
  auto Runner() {
    return [this](const auto&... arguments) { return Run(arguments...); };
  }

  AttentionDevice device_;
  const XsaCase xsa_ = {XsaForm::kNorm, 1e-6f, {}, true};
  const std::vector<AttentionShape> shapes_ = {{2, 1, 64}, {2, 1, 128}};
};

TEST_F(HopperAttentionTest, EqualsTheReferenceInMixedBatches) {
  for (const AttentionShape& shape :
       {AttentionShape{4, 2, 16}, {3, 3, 8}, {6, 1, 64}, {2, 1, 72}, {2, 2, 128}}) {
    for (const bool causal : {true, false}) {
      const auto cases = RandomSequences<T>(
          random_, shape, {{0, 1}, {0, 33}, {31, 1}, {40, 1}, {15, 20}, {70, 3}, {0, 130}});
      ExpectAttentionEqualsReference(Runner(), shape, cases, causal, {});
    }
  }
}

TEST_F(HopperAttentionTest, EqualsTheReferencePastFourSegments) {
  for (const AttentionShape& shape : {AttentionShape{4, 2, 16}, {2, 1, 128}}) {
    const auto cases = RandomSequences<T>(random_, shape, {{2060, 1}, {500, 30}, {1535, 2}});
    ExpectAttentionEqualsReference(Runner(), shape, cases, true, xsa_);
  }
}

TEST_F(HopperAttentionTest, ExcludesSelfInEveryForm) {
  const AttentionShape shape = {4, 2, 24};
  ExpectSelfIsExcludedInEveryForm(Runner(), random_, shape,
                                  RandomSequences<T>(random_, shape, {{0, 9}, {40, 1}, {16, 4}}));
}

TEST_F(HopperAttentionTest, LargeScoresNeitherOverflowNorLoseTheirOrder) {
  ExpectLargeScoresAreExact<T>(Runner(), random_);
}

TEST_F(HopperAttentionTest, ValuesThatAreNotFiniteReachOnlyRowsThatSeeThem) {
  for (const AttentionShape& shape : {AttentionShape{4, 2, 24}, {1, 1, 64}, {2, 1, 128}}) {
    SCOPED_TRACE(testing::Message() << "head_dim " << shape.head_dim << ", seed " << kSeed);
    ExpectValuesReachOnlyRowsThatSeeThem<T>(Runner(), random_, shape);
  }
}

TEST_F(HopperAttentionTest, PrefillAndDecodeGiveTheSameBitsPastFourSegments) {
  constexpr int32_t kPositions[] = {2047, 2048, 2055};
  for (const AttentionShape& shape : shapes_) {
    SCOPED_TRACE(testing::Message() << "head_dim " << shape.head_dim << ", seed " << kSeed);
    ExpectPrefillAndDecodeAgree<T>(Runner(), random_, shape, xsa_, 2056, kPositions, {1, 5}, 2040);
  }
}

TEST_F(HopperAttentionTest, BitsDependNeitherOnTheBatchNorOnHowTilesAreDivided) {
  for (const AttentionShape& shape : shapes_) {
    SCOPED_TRACE(testing::Message() << "head_dim " << shape.head_dim << ", seed " << kSeed);
    const auto cases =
        RandomSequences<T>(random_, shape, {{1300, 1}, {505, 12}, {600, 3}, {0, 70}, {31, 2}});
    device_.processors = 1;
    const auto whole = Run(shape, cases, true, xsa_);
    device_.processors = 132;
    const auto divided = Run(shape, cases, true, xsa_);
    for (size_t i = 0; i < cases.size(); ++i) {
      EXPECT_TRUE(SameBits(divided.out[i], whole.out[i])) << "sequence " << i;
      EXPECT_TRUE(SameBits(divided.cos_sim[i], whole.cos_sim[i])) << "sequence " << i;
      const auto alone = Run(shape, {cases[i]}, true, xsa_);
      EXPECT_TRUE(SameBits(alone.out[0], whole.out[i])) << "sequence " << i;
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
