#include "kernels/cuda/attention.h"

#include "tests/kernels/cuda/attention_fixture.h"

namespace sluice::kernels::cuda {
namespace {

using reference::AttentionShape;

class AttentionTilesTest : public OpTest {};

TEST_F(AttentionTilesTest, PackedQueriesAreCutIntoTilesInOrder) {
  for (int32_t group : {1, 3, 16}) {
    const std::vector<AttentionSequence> sequences = {
        {0, 1, 0, 0}, {5, 64, 1, 0}, {9, 65, 65, 0}, {0, 200, 130, 0}};
    std::vector<AttentionTile> expected;
    for (int32_t s = 0; s < 4; ++s) {
      for (int32_t first = 0; first < sequences[s].count * group; first += kTileQueries) {
        expected.push_back({s, first});
      }
    }
    const int64_t capacity = MaxAttentionTiles(330, 4, group);
    ASSERT_LE(static_cast<int64_t>(expected.size()), capacity);
    auto* tiles = lab_.Room<AttentionTile>(capacity);
    auto* count = lab_.Room<int32_t>(1);
    BuildAttentionTiles(lab_.stream(),
                        {lab_.Put(sequences), lab_.Put<int32_t>({4}), group, tiles, count});
    ASSERT_EQ(lab_.Get(count, 1)[0], static_cast<int32_t>(expected.size()));
    EXPECT_TRUE(SameBits(lab_.Get(tiles, expected.size()), expected));
  }
}

template <typename T>
class AttentionTest : public OpTest {
 protected:
  using Cases = std::vector<SequenceCase<T>>;

  void ExpectReference(const AttentionShape& shape, const Cases& cases, bool causal,
                       const XsaCase& xsa, bool in_place = false) {
    const AttentionOutputs<T> outputs =
        RunAttention(lab_, random_, shape, cases, causal, xsa, in_place);
    for (size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(testing::Message()
                   << shape.q_heads << "/" << shape.kv_heads << " heads of " << shape.head_dim
                   << ", positions " << cases[i].first_position << " + " << cases[i].count
                   << (causal ? " causal" : "") << ", seed " << kSeed);
      const reference::XsaResult expected = ReferenceAttention(shape, cases[i], causal, xsa);
      EXPECT_TRUE(Matches(Op::kAttention, outputs.out[i], expected.out));
      if (xsa.form == XsaForm::kOff) continue;
      EXPECT_TRUE((Matches<float, T>(Op::kDiagnostics, outputs.cos_sim[i], expected.cos_sim)));
      EXPECT_TRUE((Matches<float, T>(Op::kDiagnostics, outputs.proj_frac[i], expected.proj_frac)));
    }
    lab_.Clear();
  }

  // Returns sequences at the given places (first position, count): fresh prompts, continued ones
  // and decode steps, around the edges of pages, chunks and tiles.
  Cases Sequences(const AttentionShape& shape,
                  const std::vector<std::pair<int32_t, int32_t>>& places) {
    Cases cases;
    for (const auto& [first, count] : places) {
      cases.push_back(RandomSequence<T>(random_, shape, first, count));
    }
    return cases;
  }
};
TYPED_TEST_SUITE(AttentionTest, DTypes);

TYPED_TEST(AttentionTest, EqualsTheReferenceInMixedBatches) {
  for (const AttentionShape& shape : {AttentionShape{4, 2, 16}, {3, 3, 8}, {6, 1, 64}}) {
    for (bool causal : {true, false}) {
      this->ExpectReference(
          shape,
          this->Sequences(shape, {{0, 1}, {0, 33}, {31, 1}, {32, 2}, {40, 1}, {15, 20}, {70, 3}}),
          causal, {});
    }
  }
}

TYPED_TEST(AttentionTest, EqualsTheReferenceForEveryHeadDim) {
  for (int64_t dim : {1, 20, 64, 65, 72, 128, 129, 200}) {
    const AttentionShape shape = {2, 1, dim};
    this->ExpectReference(shape, this->Sequences(shape, {{0, 5}, {33, 1}}), true, {});
  }
}

TYPED_TEST(AttentionTest, ExcludesSelfInEveryForm) {
  const AttentionShape shape = {4, 2, 24};
  for (XsaForm form : {XsaForm::kNorm, XsaForm::kSquared}) {
    for (bool gated : {false, true}) {
      const std::vector<float> gate = {0.5f, -0.25f, 0.9f, 0.0f};
      this->ExpectReference(shape, this->Sequences(shape, {{0, 9}, {40, 1}, {16, 4}}), !gated,
                            {form, 1e-6f, gated ? gate : std::vector<float>()});
    }
  }
}

TYPED_TEST(AttentionTest, EpsBoundsTheDivisorForSmallAndZeroOwnValues) {
  const AttentionShape shape = {4, 2, 12};
  for (float scale : {0.0f, 1e-7f}) {
    auto cases = this->Sequences(shape, {{0, 6}});
    for (TypeParam& v : cases[0].v) v = Narrow<TypeParam>(Widen(v) * scale);
    for (XsaForm form : {XsaForm::kNorm, XsaForm::kSquared}) {
      this->ExpectReference(shape, cases, true, {form, 1e-6f, {}});
    }
  }
}

TYPED_TEST(AttentionTest, TheOutputMayOverwriteTheQueries) {
  const AttentionShape shape = {4, 2, 16};
  this->ExpectReference(shape, this->Sequences(shape, {{0, 40}, {7, 1}}), true, {}, true);
}

TYPED_TEST(AttentionTest, LargeScoresNeitherOverflowNorLoseTheirOrder) {
  const AttentionShape shape = {2, 1, 16};
  this->ExpectReference(shape, {RandomSequence<TypeParam>(this->random_, shape, 0, 40, 50.0f)},
                        true, {});
}

// The pages and rows differ too.
TYPED_TEST(AttentionTest, ASequencesBitsDoNotDependOnItsBatch) {
  const AttentionShape shape = {4, 2, 16};
  const XsaCase xsa = {XsaForm::kNorm, 1e-6f, {}};
  const auto cases = this->Sequences(shape, {{0, 3}, {0, 70}, {30, 1}, {64, 5}, {31, 2}, {0, 1}});
  const auto together = RunAttention<TypeParam>(this->lab_, this->random_, shape, cases, true, xsa);
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto alone =
        RunAttention<TypeParam>(this->lab_, this->random_, shape, {cases[i]}, true, xsa);
    EXPECT_TRUE(SameBits(alone.out[0], together.out[i])) << "sequence " << i;
    EXPECT_TRUE(SameBits(alone.cos_sim[0], together.cos_sim[i])) << "sequence " << i;
  }
}

// The prompt is computed in one step, in two, or token by token.
TYPED_TEST(AttentionTest, PrefillAndDecodeGiveTheSameBits) {
  const AttentionShape shape = {4, 2, 16};
  const int32_t length = 70;
  const int64_t q_width = shape.q_heads * shape.head_dim,
                kv_width = shape.kv_heads * shape.head_dim;
  const auto whole = RandomSequence<TypeParam>(this->random_, shape, 0, length);
  const auto part = [&](int32_t first, int32_t count) {
    return SequenceCase<TypeParam>{
        first,
        count,
        {whole.q.begin() + first * q_width, whole.q.begin() + (first + count) * q_width},
        {whole.k.begin(), whole.k.begin() + (first + count) * kv_width},
        {whole.v.begin(), whole.v.begin() + (first + count) * kv_width}};
  };
  const auto prefill = RunAttention<TypeParam>(this->lab_, this->random_, shape, {whole}, true, {});
  for (int32_t p : {0, 1, 15, 16, 31, 32, 33, 63, 64, 69}) {
    for (int32_t count : {1, std::min(20, length - p)}) {
      const auto step =
          RunAttention<TypeParam>(this->lab_, this->random_, shape, {part(p, count)}, true, {});
      const auto from = prefill.out[0].begin() + p * q_width;
      EXPECT_TRUE(SameBits(step.out[0], {from, from + count * q_width}))
          << count << " from position " << p;
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
