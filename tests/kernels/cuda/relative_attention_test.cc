// Disentangled attention.
#include "tests/kernels/cuda/relative_attention_fixture.h"

#include <cmath>
#include <random>
#include <vector>

namespace sluice::kernels::cuda {
namespace {

using reference::AttentionShape;

template <typename T>
class RelativeAttentionTest : public OpTest {
 protected:
  AttentionOutputs<T> RunWith(const AttentionShape& shape,
                              const std::vector<SequenceCase<T>>& cases) {
    return RunRelativeAttention<T>(lab_, random_, shape, cases);
  }
  auto Runner() {
    return [this](const AttentionShape& shape, const std::vector<SequenceCase<T>>& cases, bool,
                  const XsaCase&) { return RunWith(shape, cases); };
  }
  std::vector<SequenceCase<T>> Draw(const AttentionShape& shape,
                                    const std::vector<int32_t>& lengths) {
    std::vector<std::pair<int32_t, int32_t>> places;
    for (const int32_t length : lengths) places.emplace_back(0, length);
    return RandomSequences<T>(random_, shape, places);
  }
};
TYPED_TEST_SUITE(RelativeAttentionTest, DTypes);

TYPED_TEST(RelativeAttentionTest, EqualsTheReferenceForEveryTableAndSizeOfHeads) {
  SCOPED_TRACE(this->kSeed);
  for (const Tables tables : {Tables::kBoth, Tables::kKeys, Tables::kQueries}) {
    for (const int64_t head_dim : {8, 37, 64, 256}) {
      const RelativeHeads heads(this->random_, 1 + static_cast<int64_t>(this->random_() % 3),
                                head_dim, 1 + static_cast<int64_t>(this->random_() % 30), 1.1, 80,
                                tables);
      ExpectAttentionEqualsReference<TypeParam>(
          this->Runner(), heads.shape, this->Draw(heads.shape, {1, 31, 2, 33, 70}), false, {});
    }
  }
}

// Heads of DeBERTa-v3. The longest sequence has all distances of 512 tokens, and so all rows of the
// tables and the edges between them.
TYPED_TEST(RelativeAttentionTest, EqualsTheReferenceUpTo512TokensOfHeadsOf64) {
  SCOPED_TRACE(this->kSeed);
  const RelativeHeads heads(this->random_, 1, 64, 256, std::pow(511.0 / 128, 1.0 / 127), 512);
  ExpectAttentionEqualsReference<TypeParam>(this->Runner(), heads.shape,
                                            this->Draw(heads.shape, {129, 512}), false, {});
}

// The tiles of long sequences are divided, and each query is computed once.
TYPED_TEST(RelativeAttentionTest, EqualsTheReferenceAcrossSegments) {
  SCOPED_TRACE(this->kSeed);
  const RelativeHeads heads(this->random_, 1, 8, 40, 1.02, kSegmentTokens + 50);
  ExpectAttentionEqualsReference<TypeParam>(
      this->Runner(), heads.shape, this->Draw(heads.shape, {kSegmentTokens + 40, 5}), false, {});
}

TYPED_TEST(RelativeAttentionTest, ASequenceHasTheSameBitsInAnyBatch) {
  SCOPED_TRACE(this->kSeed);
  const RelativeHeads heads(this->random_, 2, 20, 24, 1.1, 90);
  std::vector<int32_t> lengths;
  for (int i = 0; i < 12; ++i) lengths.push_back(1 + static_cast<int32_t>(this->random_() % 90));
  auto cases = this->Draw(heads.shape, lengths);
  cases[3].hidden = cases[3].count / 2;  // filler that no query sees
  const auto together = this->RunWith(heads.shape, cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_TRUE(SameBits(this->RunWith(heads.shape, {cases[i]}).out[0], together.out[i])) << i;
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
