#include "kernels/cuda/attention.h"

#include "tests/kernels/cuda/attention_fixture.h"

namespace sluice::kernels::cuda {
namespace {

using reference::AttentionShape;

template <typename T>
class AttentionTest : public OpTest {
 protected:
  AttentionOutputs<T> Run(const AttentionShape& shape, const std::vector<SequenceCase<T>>& cases,
                          bool causal, const XsaCase& xsa) {
    return RunAttention(lab_, random_, shape, cases, causal, xsa);
  }
  auto Runner() {
    return [this](const auto&... arguments) { return Run(arguments...); };
  }
};
TYPED_TEST_SUITE(AttentionTest, DTypes);

// The sequences are fresh prompts, continued ones and decode steps, around the edges of pages,
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

TYPED_TEST(AttentionTest, LargeScoresNeitherOverflowNorLoseTheirOrder) {
  ExpectLargeScoresAreExact<TypeParam>(this->Runner(), this->random_);
}

// The pages and rows differ too.
TYPED_TEST(AttentionTest, ASequencesBitsDoNotDependOnItsBatch) {
  const AttentionShape shape = {4, 2, 16};
  const XsaCase xsa = {XsaForm::kNorm, 1e-6f, {}, true};
  const auto cases = RandomSequences<TypeParam>(
      this->random_, shape, {{0, 3}, {0, 70}, {30, 1}, {64, 5}, {31, 2}, {0, 1}});
  const auto together = this->Run(shape, cases, true, xsa);
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto alone = this->Run(shape, {cases[i]}, true, xsa);
    EXPECT_TRUE(SameBits(alone.out[0], together.out[i])) << "sequence " << i;
    EXPECT_TRUE(SameBits(alone.cos_sim[0], together.cos_sim[i])) << "sequence " << i;
  }
}

TYPED_TEST(AttentionTest, PrefillAndDecodeGiveTheSameBits) {
  constexpr int32_t kPositions[] = {0, 1, 15, 16, 31, 32, 33, 63, 64, 69};
  ExpectPrefillAndDecodeAgree<TypeParam>(this->Runner(), this->random_, {4, 2, 16}, {}, 70,
                                         kPositions, {1, 20});
}

}  // namespace
}  // namespace sluice::kernels::cuda
