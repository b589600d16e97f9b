#include "kernels/cpu/attention.h"

#include "tests/kernels/cpu/attention_fixture.h"
#include "tests/kernels/cpu/op_test.h"
#include "tests/support/invariance.h"

namespace sluice::kernels {
namespace {

using reference::AttentionShape;

using Sequence = SequenceCase<float>;

class AttentionTest : public OpTest {
 protected:
  // Alternates between one and two threads, and between all orders.
  AttentionOutputs<float> Run(const AttentionShape& shape, const std::vector<Sequence>& cases,
                              bool causal, const XsaCase& xsa) {
    ++runs_;
    return RunAttention(runs_ % 2 == 0 ? One() : Two(), random_, shape, cases, causal, xsa,
                        kAttentionOrders[runs_ % std::size(kAttentionOrders)]);
  }
  auto Runner() {
    return [this](const auto&... arguments) { return Run(arguments...); };
  }

  std::mt19937_64 random_{61};

 private:
  int runs_ = 0;
};

// Returns a fresh prompt, a continued prompt and decode steps, with lengths around the edges of
// pages and row blocks.
std::vector<Sequence> MixedSequences(std::mt19937_64& random, const AttentionShape& shape) {
  return RandomSequences<float>(
      random, shape,
      {{0, 1}, {0, 16}, {0, 70}, {15, 1}, {16, 1}, {17, 3}, {100, 33}, {199, 1}, {5, 64}});
}

TEST_P(AttentionTest, EqualsTheReferenceInMixedBatches) {
  for (const AttentionShape& shape : kAttentionShapes) {
    const std::vector<Sequence> cases = MixedSequences(random_, shape);
    for (bool causal : {true, false}) {
      ExpectAttentionEqualsReference(Runner(), shape, cases, causal, {});
    }
  }
}

// The lengths are around the cuts between segments of keys.
std::vector<Sequence> LongSequences(std::mt19937_64& random, const AttentionShape& shape) {
  const int32_t cut = kSegmentTokens;
  return RandomSequences<float>(
      random, shape,
      {{cut - 1, 1}, {cut, 1}, {cut - 3, 7}, {0, 2 * cut + 1}, {2 * cut - 1, 1}, {5 * cut, 9}});
}

TEST_P(AttentionTest, EqualsTheReferenceAcrossSegments) {
  for (const AttentionShape& shape : {AttentionShape{4, 2, 20}, AttentionShape{3, 1, 64}}) {
    const std::vector<Sequence> cases = LongSequences(random_, shape);
    for (const bool causal : {true, false}) {
      ExpectAttentionEqualsReference(Runner(), shape, cases, causal, {},
                                     std::size(kAttentionOrders));
    }
    for (XsaForm form : {XsaForm::kNorm, XsaForm::kSquared}) {
      ExpectAttentionEqualsReference(Runner(), shape, cases, true, {form, 1e-6f, {}, true});
    }
  }
}

TEST_P(AttentionTest, AllOrdersAndThreadsGiveTheSameBits) {
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 6; ++trial) {
    const AttentionShape shape = kAttentionShapes[random() % std::size(kAttentionShapes)];
    std::vector<Sequence> cases;
    for (int i = RandomInt(random, 1, 4); i > 0; --i) {
      cases.push_back(RandomSequence<float>(random, shape, RandomInt(random, 0, 4000),
                                            RandomInt(random, 1, trial % 2 == 0 ? 1 : 60), 3.0f));
    }
    const XsaCase xsa = {trial % 3 == 0 ? XsaForm::kOff : XsaForm::kNorm, 1e-6f, {}, false};
    SCOPED_TRACE(testing::Message() << "trial " << trial << ", seed " << seed << ", heads "
                                    << shape.q_heads << "/" << shape.kv_heads);
    const auto expected =
        RunAttention(One(), random, shape, cases, trial != 4, xsa, kAttentionOrders[1]);
    for (const AttentionChoice& choice : kAttentionOrders) {
      for (const Context& context : {One(), Two()}) {
        const auto got = RunAttention(context, random, shape, cases, trial != 4, xsa, choice);
        for (size_t i = 0; i < cases.size(); ++i) {
          EXPECT_TRUE(SameBits(got.out[i], expected.out[i]))
              << "sequence " << i << ", order " << static_cast<int>(choice.order) << " of "
              << choice.parts;
        }
      }
    }
  }
}

TEST_P(AttentionTest, ExcludesSelfInEveryForm) {
  for (const AttentionShape& shape : kAttentionShapes) {
    ExpectSelfIsExcludedInEveryForm(Runner(), random_, shape, MixedSequences(random_, shape));
  }
}

TEST_P(AttentionTest, EpsBoundsTheDivisorForSmallAndZeroOwnValues) {
  ExpectEpsBoundsTheDivisor<float>(Runner(), random_);
}

TEST_P(AttentionTest, ExclusionLeavesNothingAtPositionZero) {
  ExpectNothingIsLeftAtPositionZero<float>(Runner(), random_);
}

// If a row attends mostly to itself, the remainder is small compared with the excluded part. It
// must still be accurate relative to its own size.
TEST_P(AttentionTest, ASmallRemainderOfALargeOwnShareIsAccurate) {
  const AttentionShape shape = {2, 1, 32};
  Sequence c = RandomSequence<float>(random_, shape, 0, 20);
  for (size_t i = 0; i < c.k.size(); ++i) c.k[i] *= 3.0f;
  for (int32_t p = 0; p < c.count; ++p) {  // queries equal to their own keys
    for (int64_t i = 0; i < 2 * shape.head_dim; ++i) {
      c.q[p * 2 * shape.head_dim + i] = 2.0f * c.k[p * shape.head_dim + i % shape.head_dim];
    }
  }
  const XsaCase xsa = {.form = XsaForm::kNorm};
  const AttentionOutputs<float> outputs = Run(shape, {c}, true, xsa);
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
  ExpectLargeScoresAreExact<float>(Runner(), random_);
}

TEST_P(AttentionTest, LaterPositionsDoNotInfluenceARow) {
  ExpectLaterPositionsDoNotInfluenceARow<float>(Runner(), random_, {4, 2, 24});
}

TEST_P(AttentionTest, ValuesThatAreNotFiniteReachOnlyRowsThatSeeThem) {
  ExpectValuesReachOnlyRowsThatSeeThem<float>(Runner(), random_, {4, 2, 24});
}

// A row of the op is a whole sequence, padded to a common width.
TEST_P(AttentionTest, SequencesDoNotDependOnTheirBatchPagesOrThreads) {
  for (const AttentionShape& shape : {AttentionShape{4, 2, 20}, AttentionShape{3, 3, 64}}) {
    std::vector<Sequence> cases;
    for (int i = 0; i < 12; ++i) {
      cases.push_back(RandomSequence<float>(random_, shape, RandomInt(random_, 0, 90),
                                            RandomInt(random_, 1, 40)));
    }
    const size_t width = 40 * shape.q_heads * shape.head_dim;
    const XsaCase xsa = {XsaForm::kSquared, 1e-6f, RandomFloats(random_, shape.q_heads), false};
    const RowsOp op = [&](std::span<const int32_t> rows) {
      std::vector<Sequence> batch;
      for (int32_t row : rows) batch.push_back(cases[row]);
      AttentionOutputs<float> outputs = Run(shape, batch, true, xsa);
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

TEST_P(AttentionTest, PrefillAndDecodeGiveTheSameBits) {
  std::vector<int32_t> positions(80);
  std::iota(positions.begin(), positions.end(), 0);
  for (const AttentionShape& shape : {AttentionShape{4, 4, 8}, AttentionShape{6, 2, 64}}) {
    ExpectPrefillAndDecodeAgree<float>(Runner(), random_, shape, {.form = XsaForm::kNorm}, 80,
                                       positions, {1, 20});
  }
}

TEST_P(AttentionTest, PrefillAndDecodeGiveTheSameBitsAcrossSegments) {
  constexpr int32_t kCut = kSegmentTokens;
  constexpr int32_t kPositions[] = {kCut - 2, kCut - 1, kCut, 2 * kCut - 1, 2 * kCut};
  for (const AttentionShape& shape : {AttentionShape{4, 4, 8}, AttentionShape{6, 2, 64}}) {
    ExpectPrefillAndDecodeAgree<float>(Runner(), random_, shape, {.form = XsaForm::kNorm},
                                       2 * kCut + 30, kPositions, {1, 25});
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
