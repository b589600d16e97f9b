#include "kernels/cpu/attention.h"

#include "tests/kernels/cpu/attention_fixture.h"
#include "tests/kernels/cpu/op_test.h"
#include "tests/support/invariance.h"

namespace sluice::kernels {
namespace {

using reference::AttentionShape;

constexpr AttentionShape kShapes[] = {{1, 1, 1},  {4, 4, 8},   {4, 2, 20}, {6, 1, 64},
                                      {8, 2, 37}, {3, 1, 128}, {10, 2, 16}};

class AttentionTest : public OpTest {};

void ExpectReference(const Context& context, const AttentionShape& shape,
                     const std::vector<SequenceCase>& cases, bool causal, const XsaCase& xsa,
                     uint64_t seed) {
  std::vector<const SequenceCase*> pointers;
  for (const SequenceCase& c : cases) pointers.push_back(&c);
  const AttentionOutputs outputs = RunAttention(context, shape, pointers, causal, xsa, seed);
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(testing::Message()
                 << shape.q_heads << "/" << shape.kv_heads << " heads of " << shape.head_dim
                 << ", positions " << cases[i].first_position << " + " << cases[i].count
                 << (causal ? " causal" : "") << ", seed " << seed);
    const reference::XsaResult expected = ReferenceAttention(shape, cases[i], causal, xsa);
    EXPECT_TRUE(Matches(Op::kAttention, outputs.out[i], expected.out));
    if (!xsa.diagnostics) continue;
    EXPECT_TRUE(Matches(Op::kDiagnostics, outputs.cos_sim[i], expected.cos_sim));
    EXPECT_TRUE(Matches(Op::kDiagnostics, outputs.proj_frac[i], expected.proj_frac));
  }
}

// Returns a fresh prompt, a continued one and decode steps, with lengths around the edges of pages
// and row blocks.
std::vector<SequenceCase> MixedSequences(std::mt19937_64& random, const AttentionShape& shape) {
  std::vector<SequenceCase> cases;
  for (const auto& [first, count] : std::vector<std::pair<int, int>>{
           {0, 1}, {0, 16}, {0, 70}, {15, 1}, {16, 1}, {17, 3}, {100, 33}, {199, 1}, {5, 64}}) {
    cases.push_back(RandomSequence(random, shape, first, count));
  }
  return cases;
}

TEST_P(AttentionTest, EqualsTheReferenceInMixedBatches) {
  std::mt19937_64 random(61);
  uint64_t seed = 0;
  for (const AttentionShape& shape : kShapes) {
    const std::vector<SequenceCase> cases = MixedSequences(random, shape);
    for (bool causal : {true, false}) ExpectReference(Two(), shape, cases, causal, {}, ++seed);
  }
}

TEST_P(AttentionTest, ExcludesSelfInEveryForm) {
  std::mt19937_64 random(62);
  uint64_t seed = 0;
  for (const AttentionShape& shape : kShapes) {
    const std::vector<SequenceCase> cases = MixedSequences(random, shape);
    for (XsaForm form : {XsaForm::kNorm, XsaForm::kSquared}) {
      const std::vector<float> gate = RandomFloats(random, shape.q_heads);
      ExpectReference(Two(), shape, cases, true, {form, 1e-6f, {}, true}, ++seed);
      ExpectReference(One(), shape, cases, false, {form, 1e-8f, gate, true}, ++seed);
    }
  }
}

TEST_P(AttentionTest, EpsBoundsTheDivisorForSmallAndZeroOwnValues) {
  std::mt19937_64 random(63);
  const AttentionShape shape = {4, 2, 12};
  for (float scale : {0.0f, 1e-7f, 1e-5f}) {
    SequenceCase c = RandomSequence(random, shape, 0, 20);
    for (float& value : c.v) value *= scale;
    for (XsaForm form : {XsaForm::kNorm, XsaForm::kSquared}) {
      for (float eps : {1e-6f, 1e-8f, 1e-12f}) {
        ExpectReference(One(), shape, {c}, true, {form, eps, {}, true}, 1);
      }
    }
  }
}

TEST_P(AttentionTest, ExclusionLeavesNothingAtPositionZero) {
  std::mt19937_64 random(64);
  const AttentionShape shape = {4, 2, 64};
  const SequenceCase c = RandomSequence(random, shape, 0, 1);
  const SequenceCase* const pointer = &c;
  const AttentionOutputs outputs =
      RunAttention(One(), shape, {&pointer, 1}, true, {XsaForm::kNorm, 1e-6f, {}, true}, 1);
  for (float value : outputs.out[0]) EXPECT_EQ(value, 0);
  for (float value : outputs.proj_frac[0]) EXPECT_NEAR(value, 1, 1e-6);
}

// If a row attends mostly to itself, the remainder is small beside the excluded part; it must still
// be accurate relative to its own size.
TEST_P(AttentionTest, ASmallRemainderBesideALargeOwnShareIsAccurate) {
  std::mt19937_64 random(70);
  const AttentionShape shape = {2, 1, 32};
  SequenceCase c = RandomSequence(random, shape, 0, 20);
  for (size_t i = 0; i < c.k.size(); ++i) c.k[i] *= 3.0f;
  for (int32_t p = 0; p < c.count; ++p) {  // queries equal to their own keys
    for (int64_t i = 0; i < 2 * shape.head_dim; ++i) {
      c.q[p * 2 * shape.head_dim + i] = 2.0f * c.k[p * shape.head_dim + i % shape.head_dim];
    }
  }
  const XsaCase xsa = {XsaForm::kNorm, 1e-6f, {}, false};
  const SequenceCase* const pointer = &c;
  const AttentionOutputs outputs = RunAttention(One(), shape, {&pointer, 1}, true, xsa, 1);
  const reference::XsaResult expected = ReferenceAttention(shape, c, true, xsa);
  double error = 0, size = 0;
  for (size_t i = 0; i < expected.out.size(); ++i) {
    error = std::max(error, std::abs(outputs.out[0][i] - expected.out[i]));
    size = std::max(size, std::abs(expected.out[i]));
  }
  EXPECT_LT(size, 1e-2);
  EXPECT_LE(error, 2e-5 * size);
}

TEST_P(AttentionTest, LargeScoresNeitherOverflowNorLoseTheirOrder) {
  std::mt19937_64 random(65);
  const AttentionShape shape = {4, 2, 16};
  ExpectReference(Two(), shape, {RandomSequence(random, shape, 0, 40, 50.0f)}, true, {}, 1);
}

// Positions that a row must not see may hold anything, even an infinity of its own sequence.
TEST_P(AttentionTest, LaterPositionsDoNotInfluenceARow) {
  std::mt19937_64 random(66);
  const AttentionShape shape = {4, 2, 24};
  const SequenceCase clean = RandomSequence(random, shape, 3, 50);
  SequenceCase dirty = clean;
  const int32_t width = static_cast<int32_t>(shape.kv_heads * shape.head_dim), from = 30;
  std::fill(dirty.k.begin() + from * width, dirty.k.end(), kPoison);
  std::fill(dirty.v.begin() + from * width, dirty.v.end(), kPoison);
  const SequenceCase* const pointers[] = {&clean, &dirty};
  const XsaCase xsa = {XsaForm::kNorm, 1e-6f, {}, false};
  const AttentionOutputs outputs = RunAttention(Two(), shape, pointers, true, xsa, 1);
  const size_t seen = (from - 3) * shape.q_heads * shape.head_dim;
  EXPECT_TRUE(
      std::equal(outputs.out[0].begin(), outputs.out[0].begin() + seen, outputs.out[1].begin()));
  EXPECT_TRUE(std::isnan(outputs.out[1][seen]));
}

// A row of the op is a whole sequence, padded to a common width.
TEST_P(AttentionTest, SequencesDoNotDependOnTheirBatchPagesOrThreads) {
  for (const AttentionShape& shape : {AttentionShape{4, 2, 20}, AttentionShape{3, 3, 64}}) {
    std::mt19937_64 random(67);
    std::vector<SequenceCase> cases;
    for (int i = 0; i < 12; ++i) {
      cases.push_back(RandomSequence(random, shape, static_cast<int32_t>(RandomInt(random, 0, 90)),
                                     static_cast<int32_t>(RandomInt(random, 1, 40))));
    }
    const size_t width = 40 * shape.q_heads * shape.head_dim;
    uint64_t seed = 0;
    const XsaCase xsa = {XsaForm::kSquared, 1e-6f, RandomFloats(random, shape.q_heads), false};
    const RowsOp op = [&](std::span<const int32_t> rows) {
      std::vector<const SequenceCase*> pointers;
      for (int32_t row : rows) pointers.push_back(&cases[row]);
      ++seed;
      AttentionOutputs outputs =
          RunAttention(seed % 3 == 0 ? One() : Two(), shape, pointers, true, xsa, seed);
      std::vector<float> out;
      for (std::vector<float>& sequence : outputs.out) {
        sequence.resize(width, 0.0f);
        out.insert(out.end(), sequence.begin(), sequence.end());
      }
      return out;
    };
    EXPECT_TRUE(RowsAreInvariant(op, {.rows = 12, .max_batch = 24, .seed = 68}));
  }
}

TEST_P(AttentionTest, PrefillAndDecodeAgreeBitForBit) {
  std::mt19937_64 random(69);
  for (const AttentionShape& shape : {AttentionShape{4, 4, 8}, AttentionShape{6, 2, 64}}) {
    const SequenceCase whole = RandomSequence(random, shape, 0, 80);
    const SequenceCase* pointer = &whole;
    const XsaCase xsa = {XsaForm::kNorm, 1e-6f, {}, false};
    const AttentionOutputs prefill = RunAttention(Two(), shape, {&pointer, 1}, true, xsa, 1);
    const int64_t q_width = shape.q_heads * shape.head_dim;
    const int64_t kv_width = shape.kv_heads * shape.head_dim;
    for (int32_t p = 0; p < whole.count; ++p) {
      const SequenceCase step = {
          p,
          1,
          {whole.q.begin() + p * q_width, whole.q.begin() + (p + 1) * q_width},
          {whole.k.begin(), whole.k.begin() + (p + 1) * kv_width},
          {whole.v.begin(), whole.v.begin() + (p + 1) * kv_width}};
      pointer = &step;
      const AttentionOutputs decode = RunAttention(One(), shape, {&pointer, 1}, true, xsa, 2);
      ASSERT_TRUE(std::equal(decode.out[0].begin(), decode.out[0].end(),
                             prefill.out[0].begin() + p * q_width))
          << "position " << p;
    }
  }
}

TEST_P(AttentionTest, NoSequencesDoNothing) {
  const KvLayer kv = {nullptr, nullptr, 2, 8};
  AttentionArgs args = {};
  args.q_heads = 4;
  Attention(Two(), args, kv, {}, 0, nullptr);
}

SLUICE_EVERY_F32_PROFILE(AttentionTest);

}  // namespace
}  // namespace sluice::kernels
