#include "kernels/cuda/attention.h"

#include <gmock/gmock.h>

#include "tests/kernels/cuda/attention_fixture.h"

namespace sluice::kernels::cuda {
namespace {

using reference::AttentionShape;

// The shared memory that a block may take on GPUs of compute capability 8.6, 8.9 and 12.0; 8.0 and
// 8.7; 9.0 and 10.0.
constexpr int32_t kSharedLimits[] = {99 << 10, 163 << 10, 227 << 10};

template <typename T>
class AttentionTest : public OpTest {
 protected:
  AttentionOutputs<T> Run(const AttentionShape& shape, const std::vector<SequenceCase<T>>& cases,
                          bool causal, const XsaCase& xsa) {
    return RunAttention(lab_, random_, shape, cases, causal, xsa, device_);
  }
  auto Runner() {
    return [this](const auto&... arguments) { return Run(arguments...); };
  }

  AttentionDevice device_;
};
TYPED_TEST_SUITE(AttentionTest, DTypes);

// The sequences are fresh prompts, continued prompts and decode steps, around the edges of pages,
// chunks and tiles.
TYPED_TEST(AttentionTest, EqualsTheReferenceInMixedBatches) {
  for (const AttentionShape& shape : {AttentionShape{4, 2, 16}, {3, 3, 8}, {6, 1, 64}}) {
    for (bool causal : {true, false}) {
      const auto cases = RandomSequences<TypeParam>(
          this->random_, shape, {{0, 1}, {0, 33}, {31, 1}, {32, 2}, {40, 1}, {15, 20}, {70, 3}});
      ExpectAttentionEqualsReference(this->Runner(), shape, cases, causal, {});
    }
  }
}

TYPED_TEST(AttentionTest, EqualsTheReferenceForEveryHeadDim) {
  for (int64_t dim : {1, 20, 64, 65, 72, 128, 129, 200}) {
    const AttentionShape shape = {2, 1, dim};
    const auto cases = RandomSequences<TypeParam>(this->random_, shape, {{0, 5}, {33, 1}});
    ExpectAttentionEqualsReference(this->Runner(), shape, cases, true, {});
  }
}

TYPED_TEST(AttentionTest, ExcludesSelfInEveryForm) {
  const AttentionShape shape = {4, 2, 24};
  ExpectSelfIsExcludedInEveryForm(
      this->Runner(), this->random_, shape,
      RandomSequences<TypeParam>(this->random_, shape, {{0, 9}, {40, 1}, {16, 4}}));
}

TYPED_TEST(AttentionTest, EpsBoundsTheDivisorForSmallAndZeroOwnValues) {
  ExpectEpsBoundsTheDivisor<TypeParam>(this->Runner(), this->random_);
}

TYPED_TEST(AttentionTest, ExclusionLeavesNothingAtPositionZero) {
  ExpectNothingIsLeftAtPositionZero<TypeParam>(this->Runner(), this->random_);
}

TYPED_TEST(AttentionTest, LargeScoresNeitherOverflowNorLoseTheirOrder) {
  ExpectLargeScoresAreExact<TypeParam>(this->Runner(), this->random_);
}

TYPED_TEST(AttentionTest, FitsTheSharedMemoryOfEveryGpu) {
  for (int32_t dim : {1, 64, 65, 128, 129, 256}) {
    int32_t before = 0;
    for (int32_t limit : kSharedLimits) {
      const int32_t bytes = AttentionSharedBytes<TypeParam>(dim, limit);
      EXPECT_LE(bytes, limit) << "head_dim " << dim;
      EXPECT_GE(bytes, before) << "head_dim " << dim << ", limit " << limit;
      before = bytes;
    }
  }
  // No GPU has such a low limit. It shows that the need is reported.
  constexpr int32_t kTooLittle = 32 << 10;
  EXPECT_GT(AttentionSharedBytes<TypeParam>(256, kTooLittle), kTooLittle);
}

TYPED_TEST(AttentionTest, BitsDoNotDependOnTheSharedMemory) {
  for (int64_t dim : {48, 64, 101, 128, 250, 255, 256}) {
    const AttentionShape shape = {2, 1, dim};
    const auto cases = RandomSequences<TypeParam>(this->random_, shape, {{0, 5}, {30, 3}, {64, 1}});
    this->device_.shared_limit = kSharedLimits[0];
    const auto least = this->Run(shape, cases, true, {}).out;
    for (int32_t limit : {kSharedLimits[1], kSharedLimits[2]}) {
      this->device_.shared_limit = limit;
      const auto out = this->Run(shape, cases, true, {}).out;
      for (size_t i = 0; i < cases.size(); ++i) {
        EXPECT_TRUE(SameBits(out[i], least[i])) << "head_dim " << dim << ", limit " << limit;
      }
    }
  }
}

TYPED_TEST(AttentionTest, LaterPositionsDoNotInfluenceARow) {
  ExpectLaterPositionsDoNotInfluenceARow<TypeParam>(this->Runner(), this->random_, {4, 2, 24});
}

TYPED_TEST(AttentionTest, ValuesThatAreNotFiniteReachOnlyRowsThatSeeThem) {
  for (const AttentionShape& shape :
       {AttentionShape{4, 2, 24}, {1, 1, 64}, {2, 1, 128}, {1, 1, 256}}) {
    SCOPED_TRACE(testing::Message() << "head_dim " << shape.head_dim << ", seed " << this->kSeed);
    this->device_.shared_limit = kSharedLimits[shape.head_dim == 256 ? 0 : 2];
    ExpectValuesReachOnlyRowsThatSeeThem<TypeParam>(this->Runner(), this->random_, shape);
  }
}

// The heads of real models; in the emulator fewer of them.
std::vector<AttentionShape> RealShapes() {
  if (Emulated()) return {{2, 1, 64}, {2, 1, 128}, {2, 1, 256}};
  return {{16, 16, 64}, {32, 8, 128}, {8, 1, 256}};
}

// The pages and rows differ too.
TYPED_TEST(AttentionTest, ASequencesBitsDoNotDependOnItsBatch) {
  using Places = std::vector<std::pair<int32_t, int32_t>>;
  const auto expect_same = [this](const AttentionShape& shape, const Places& places) {
    SCOPED_TRACE(testing::Message() << "head_dim " << shape.head_dim << ", seed " << this->kSeed);
    const XsaCase xsa = {XsaForm::kNorm, 1e-6f, {}, true};
    const auto cases = RandomSequences<TypeParam>(this->random_, shape, places);
    const auto together = this->Run(shape, cases, true, xsa);
    for (size_t i = 0; i < cases.size(); ++i) {
      const auto alone = this->Run(shape, {cases[i]}, true, xsa);
      EXPECT_TRUE(SameBits(alone.out[0], together.out[i])) << "sequence " << i;
      EXPECT_TRUE(SameBits(alone.cos_sim[0], together.cos_sim[i])) << "sequence " << i;
    }
  };
  expect_same({4, 2, 16}, {{0, 3}, {0, 70}, {30, 1}, {64, 5}, {31, 2}, {0, 1}});
  const Places real = Emulated() ? Places{{0, 36}, {67, 1}, {33, 2}}
                                 : Places{{0, 2048}, {2047, 1}, {500, 300}, {1023, 2}, {0, 1}};
  for (const AttentionShape& shape : RealShapes()) expect_same(shape, real);
}

TYPED_TEST(AttentionTest, PrefillAndDecodeGiveTheSameBits) {
  constexpr int32_t kPositions[] = {0, 1, 15, 16, 31, 32, 33, 63, 64, 69};
  ExpectPrefillAndDecodeAgree<TypeParam>(this->Runner(), this->random_, {4, 2, 16}, {}, 70,
                                         kPositions, {1, 20});
}

TYPED_TEST(AttentionTest, PrefillAndDecodeGiveTheSameBitsAtRealSizes) {
  const int32_t length = Emulated() ? 67 : 2048;
  const std::vector<int32_t> positions = Emulated()
                                             ? std::vector<int32_t>{31, 66}
                                             : std::vector<int32_t>{0, 31, 512, 1000, 2016, 2047};
  for (const AttentionShape& shape : RealShapes()) {
    SCOPED_TRACE(testing::Message() << "head_dim " << shape.head_dim << ", seed " << this->kSeed);
    ExpectPrefillAndDecodeAgree<TypeParam>(this->Runner(), this->random_, shape, {}, length,
                                           positions, {1, 20});
  }
}

// The keys of a few rows fill five segments. Whether their tiles are divided depends on the number
// of processors that the fixture chooses.
TYPED_TEST(AttentionTest, PrefillAndDecodeGiveTheSameBitsPastFourSegments) {
  constexpr int32_t kFirst = 2040, kLength = 2056;
  constexpr int32_t kPositions[] = {2047, 2048, 2055};
  for (const AttentionShape& shape : RealShapes()) {
    SCOPED_TRACE(testing::Message() << "head_dim " << shape.head_dim << ", seed " << this->kSeed);
    ExpectPrefillAndDecodeAgree<TypeParam>(this->Runner(), this->random_, shape,
                                           {XsaForm::kNorm, 1e-6f, {}, true}, kLength, kPositions,
                                           {1, 5}, kFirst);
  }
}

TYPED_TEST(AttentionTest, EqualsTheReferencePastFourSegments) {
  for (const AttentionShape& shape :
       {AttentionShape{4, 2, 16}, {1, 1, 63}, {2, 1, 128}, {1, 1, 127}, {3, 1, 200}, {1, 1, 255}}) {
    for (const bool causal : {true, false}) {
      const auto cases = RandomSequences<TypeParam>(this->random_, shape,
                                                    {{2060, 1}, {500, 17}, {1535, 2}, {0, 7}});
      ExpectAttentionEqualsReference(this->Runner(), shape, cases, causal,
                                     {XsaForm::kNorm, 1e-6f, {}, true});
    }
  }
}

TYPED_TEST(AttentionTest, BitsDoNotDependOnHowTilesAreDivided) {
  for (const AttentionShape& shape : RealShapes()) {
    SCOPED_TRACE(testing::Message() << "head_dim " << shape.head_dim << ", seed " << this->kSeed);
    const auto cases = RandomSequences<TypeParam>(this->random_, shape,
                                                  {{2300, 1}, {1015, 12}, {600, 3}, {0, 20}});
    const XsaCase xsa = {XsaForm::kNorm, 1e-6f, {}, true};
    this->device_.processors = 1;
    const auto whole = this->Run(shape, cases, true, xsa);
    for (const int32_t processors : {3, 132}) {
      this->device_.processors = processors;
      const auto divided = this->Run(shape, cases, true, xsa);
      for (size_t i = 0; i < cases.size(); ++i) {
        EXPECT_TRUE(SameBits(divided.out[i], whole.out[i])) << processors << " processors, " << i;
        EXPECT_TRUE(SameBits(divided.cos_sim[i], whole.cos_sim[i])) << processors << ", " << i;
        EXPECT_TRUE(SameBits(divided.proj_frac[i], whole.proj_frac[i])) << processors << ", " << i;
      }
    }
  }
}

// A block takes several sequences of few queries, one after another. Its warps share each of them.
TYPED_TEST(AttentionTest, ABlockTakesManyShortSequences) {
  this->device_.processors = 1;
  for (const AttentionShape& shape : RealShapes()) {
    SCOPED_TRACE(testing::Message() << "head_dim " << shape.head_dim << ", seed " << this->kSeed);
    std::vector<std::pair<int32_t, int32_t>> places;
    for (int32_t i = 0; i < 9; ++i) places.emplace_back(i % 3 == 0 ? 0 : 31 * i, 1 + i % 7);
    const auto cases = RandomSequences<TypeParam>(this->random_, shape, places);
    ExpectAttentionEqualsReference(this->Runner(), shape, cases, true, {});
    const auto together = this->Run(shape, cases, true, {});
    for (size_t i = 0; i < cases.size(); ++i) {
      EXPECT_TRUE(SameBits(this->Run(shape, {cases[i]}, true, {}).out[0], together.out[i])) << i;
    }
  }
}

TYPED_TEST(AttentionTest, DiagnosticsAreWrittenOnlyIfTheStepNeedsThem) {
  const AttentionShape shape = {4, 2, 24};
  const auto cases = RandomSequences<TypeParam>(this->random_, shape, {{600, 1}, {0, 9}});
  const XsaCase xsa = {XsaForm::kNorm, 1e-6f, {}, true};
  const auto wanted = this->Run(shape, cases, true, xsa);
  this->device_.wants_diagnostics = false;
  const auto unwanted = this->Run(shape, cases, true, xsa);
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_TRUE(SameBits(unwanted.out[i], wanted.out[i])) << i;
    EXPECT_THAT(unwanted.cos_sim[i], testing::Each(testing::IsNan())) << i;
    EXPECT_THAT(unwanted.proj_frac[i], testing::Each(testing::IsNan())) << i;
    EXPECT_THAT(wanted.cos_sim[i], testing::Each(testing::Not(testing::IsNan()))) << i;
    EXPECT_THAT(wanted.proj_frac[i], testing::Each(testing::Not(testing::IsNan()))) << i;
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
