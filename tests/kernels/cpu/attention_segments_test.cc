// Attention over several segments of keys: it has the same bits in every batch, order and step, and
// handles scores that are not finite.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/attention.h"
#include "tests/kernels/cpu/attention_fixture.h"
#include "tests/kernels/cpu/op_test.h"
#include "tests/support/invariance.h"

namespace sluice::kernels {
namespace {

using Case = SequenceCase<float>;
using reference::AttentionShape;

class AttentionSegmentsTest : public OpTest {
 protected:
  // Returns a context of 1 to 3 threads.
  Context Threads(int count) {
    return count == 1 ? One() : count == 2 ? Two() : Context{GetParam(), &three_};
  }

 private:
  ThreadPool three_{3};
};

// Returns rows [first, first + count) of a whole prompt as a separate step.
Case StepOf(const Case& whole, const AttentionShape& shape, int32_t first, int32_t count) {
  const int64_t q_width = shape.q_heads * shape.head_dim;
  const int64_t kv_width = shape.kv_heads * shape.head_dim;
  const int64_t past = first + count;
  return {first,
          count,
          {whole.q.begin() + first * q_width, whole.q.begin() + past * q_width},
          {whole.k.begin(), whole.k.begin() + past * kv_width},
          {whole.v.begin(), whole.v.begin() + past * kv_width}};
}

// Returns whether the plan of such a step has blocks in parts.
bool IsDivided(const AttentionChoice& choice, const AttentionShape& shape,
               const std::vector<Case>& batch, int threads) {
  AttentionSizes sizes = {static_cast<int32_t>(shape.q_heads), static_cast<int32_t>(shape.kv_heads),
                          static_cast<int32_t>(shape.head_dim), 0, threads};
  std::vector<AttentionSequence> sequences;
  for (const Case& c : batch) {
    sequences.push_back({c.first_position, c.count, nullptr, nullptr});
    sizes.max_context = std::max<int64_t>(sizes.max_context, c.length());
  }
  return AttentionSchedule(choice, sizes, sequences).divided_queries() > 0;
}

// Some rows of one of several prompts.
struct Piece {
  size_t prompt;
  int32_t first, count;
};

// Returns the pieces of a batch: the last row of the first prompt by itself; a whole prompt with
// others; one row or some rows of one prompt; or up to 9 such pieces.
std::vector<Piece> PiecesOf(int trial, const std::vector<Case>& prompts, std::mt19937_64& random) {
  if (trial == 0) return {{0, prompts[0].count - 1, 1}};
  std::vector<Piece> pieces;
  if (trial == 1) pieces.push_back({1, 0, prompts[1].count});
  for (int i = trial < 4 ? 1 : RandomInt(random, 2, 9); i > 0; --i) {
    const size_t prompt = random() % prompts.size();
    const int32_t first = RandomInt(random, 0, prompts[prompt].count - 1);
    const int32_t most = trial % 3 == 0 ? 1 : random() % 2 == 0 ? 10 : 120;
    pieces.push_back({prompt, first, std::min(most, prompts[prompt].count - first)});
  }
  return pieces;
}

// Each prompt, of up to five segments, is computed whole and by itself. Steps of decoding, of
// pieces of prompts and of whole prompts must have the bits of the same rows, both in single runs
// and in random batches.
TEST_P(AttentionSegmentsTest, RowsOfLongSequencesHaveTheSameBitsInEveryBatch) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const AttentionShape shape = {4, 2, 12};
  const XsaCase xsa = {XsaForm::kNorm, 1e-6f, {}, true};
  std::vector<Case> prompts;
  std::vector<AttentionOutputs<float>> whole;
  for (const int32_t longest : {2500, 1600, 1100, 600, 40, 3}) {
    const int32_t length = longest - RandomInt(random, 0, longest / 10);
    prompts.push_back(RandomSequence<float>(random, shape, 0, length, 3.0f));
    whole.push_back(RunAttention(One(), random, shape, {prompts.back()}, true, xsa,
                                 {AttentionOrder::kOnePass}));
  }
  for (const AttentionChoice& choice : kAttentionOrders) {
    int divided = 0;
    for (const int threads : {1, 2, 3}) {
      for (int trial = 0; trial < 9; ++trial) {
        const std::vector<Piece> pieces = PiecesOf(trial, prompts, random);
        std::vector<Case> batch;
        for (const Piece& piece : pieces) {
          batch.push_back(StepOf(prompts[piece.prompt], shape, piece.first, piece.count));
        }
        divided += IsDivided(choice, shape, batch, threads);
        const auto got = RunAttention(Threads(threads), random, shape, batch, true, xsa, choice);
        for (size_t i = 0; i < batch.size(); ++i) {
          const auto& [prompt, first, count] = pieces[i];
          const auto same = [&](const auto& part, const auto& all, int64_t width) {
            const auto begin = all.begin() + first * width;
            return SameBits(part, {begin, begin + count * width});
          };
          ASSERT_TRUE(same(got.out[i], whole[prompt].out[0], shape.q_heads * shape.head_dim) &&
                      same(got.cos_sim[i], whole[prompt].cos_sim[0], shape.q_heads) &&
                      same(got.proj_frac[i], whole[prompt].proj_frac[0], shape.q_heads))
              << count << " rows from " << first << ", " << batch.size() << " sequences, "
              << threads << " threads, order " << static_cast<int>(choice.order) << " of "
              << choice.parts;
        }
      }
    }
    const bool may_divide = choice.order == AttentionOrder::kBalanced || choice.parts > 1;
    EXPECT_EQ(divided > 0, may_divide) << static_cast<int>(choice.order);
  }
}

// Returns the sequence with the two halves of its keys exchanged. For a row that sees all keys,
// this is another choice of segments: the cuts are between other keys.
Case WithOtherCuts(Case c, const AttentionShape& shape) {
  const int64_t half = c.length() / 2 * shape.kv_heads * shape.head_dim;
  std::rotate(c.k.begin(), c.k.begin() + half, c.k.end());
  std::rotate(c.v.begin(), c.v.begin() + half, c.v.end());
  return c;
}

// A kernel may choose the order in which it reads keys by the batch, but not the cuts between them.
// Such cuts are reported.
TEST_P(AttentionSegmentsTest, CutsChosenByTheBatchSizeAreReportedAndOrdersAreNot) {
  std::mt19937_64 random(71);
  const AttentionShape shape = {2, 1, 20};
  std::vector<Case> cases, cut_otherwise;
  for (int row = 0; row < 8; ++row) {
    cases.push_back(RandomSequence<float>(random, shape, 1299 + 2 * row, 1, 3.0f));
    cut_otherwise.push_back(WithOtherCuts(cases.back(), shape));
  }
  const auto op = [&](bool other_order, bool other_cuts) -> RowsOp {
    return [&, other_order, other_cuts](std::span<const int32_t> rows) {
      const bool large = rows.size() > 4;
      std::vector<Case> batch;
      for (const int32_t row : rows) {
        batch.push_back((large && other_cuts ? cut_otherwise : cases)[row]);
      }
      const AttentionChoice choice = {large && other_order ? AttentionOrder::kTwoPass
                                                           : AttentionOrder::kBalanced};
      std::vector<float> out;
      for (const auto& sequence :
           RunAttention(Two(), random, shape, batch, false, {}, choice).out) {
        out.insert(out.end(), sequence.begin(), sequence.end());
      }
      return out;
    };
  };
  const InvarianceOptions options = {.rows = 8, .max_batch = 8, .seed = 72};
  EXPECT_TRUE(RowsAreInvariant(op(false, false), options));
  EXPECT_TRUE(RowsAreInvariant(op(true, false), options));
  const testing::AssertionResult cuts = RowsAreInvariant(op(false, true), options);
  EXPECT_FALSE(cuts);
  EXPECT_NE(std::string(cuts.message()).find("of a batch of 5 differs"), std::string::npos)
      << cuts.message();
}

// A change to the keys [first, past) of a sequence.
struct OddKeys {
  const char* name;
  int32_t first, past;
  float value;  // of their first feature, which every query multiplies by a positive number
  bool spoils;  // whether some results are NaN
};

// Computes rows of every segment in all orders. All have the same bits and equal the reference.
TEST_P(AttentionSegmentsTest, ScoresThatAreNotFiniteInASegmentEqualTheReference) {
  constexpr int32_t kCut = kSegmentTokens;
  constexpr float kUnderflow = -2000;  // relative to other scores, the weights are 0
  constexpr OddKeys kOddKeys[] = {
      {"-inf in the first segment", 0, kCut, -kInfinity, true},
      {"-inf in the second segment", kCut, 2 * kCut, -kInfinity, false},
      {"-inf in two segments", 0, 2 * kCut, -kInfinity, true},
      {"-inf at keys of all segments", kCut / 2, 2 * kCut + 9, -kInfinity, false},
      {"weights of 0 in the first segment", 0, kCut, kUnderflow, false},
      {"weights of 0 in later segments", kCut, 3 * kCut, kUnderflow, false},
      {"NaN in the first segment", 7, 8, kPoison, true},
      {"NaN in the second segment", kCut + 300, kCut + 301, kPoison, true}};
  const AttentionShape shape = {4, 2, 20};
  const int64_t q_width = shape.q_heads * shape.head_dim;
  std::mt19937_64 random(73);
  Case whole = RandomSequence<float>(random, shape, 0, 2 * kCut + 70);
  for (int64_t i = 0; i < std::ssize(whole.q); i += shape.head_dim) {
    whole.q[i] = 0.5f + std::abs(whole.q[i]);
  }
  for (const OddKeys& odd : kOddKeys) {
    SCOPED_TRACE(odd.name);
    Case changed = whole;
    for (int32_t j = odd.first; j < std::min(odd.past, whole.count); ++j) {
      for (int64_t h = 0; h < shape.kv_heads; ++h) {
        changed.k[(j * shape.kv_heads + h) * shape.head_dim] = odd.value;
      }
    }
    std::vector<Case> batch;
    for (const auto& [first, count] : {std::pair{2 * kCut + 60, 10},
                                       {2 * kCut + 1, 1},
                                       {kCut - 3, 9},
                                       {kCut + 310, 1},
                                       {5, 20},
                                       {kCut - 1, 1}}) {
      batch.push_back(StepOf(changed, shape, first, count));
    }
    const auto expected = RunAttention(One(), random, shape, batch, true, {}, kAttentionOrders[1]);
    int64_t finite = 0, not_finite = 0;
    for (size_t s = 0; s < batch.size(); ++s) {
      const std::vector<double> reference =
          ReferenceAttention<float>(shape, batch[s], true, {}).out;
      for (int64_t i = 0; i < std::ssize(reference); ++i) {
        const int64_t position = batch[s].first_position + i / q_width;
        const float got = expected.out[s][i];
        if (std::isnan(reference[i])) {
          ++not_finite;
          ASSERT_TRUE(std::isnan(got)) << got << " at position " << position;
        } else {
          ++finite;
          // If all scores are large, their rounding errors are large too.
          const bool large = odd.value == kUnderflow && odd.first == 0 && position < odd.past;
          ASSERT_NEAR(got, reference[i], large ? 1e-3 : Tolerance<float>(Op::kAttention))
              << position;
        }
      }
    }
    EXPECT_GT(finite, 0);
    EXPECT_EQ(not_finite > 0, odd.spoils);
    for (const AttentionChoice& choice : kAttentionOrders) {
      for (const int threads : {1, 2, 3}) {
        const auto got = RunAttention(Threads(threads), random, shape, batch, true, {}, choice);
        for (size_t s = 0; s < batch.size(); ++s) {
          EXPECT_TRUE(SameBits(got.out[s], expected.out[s]))
              << "sequence " << s << ", order " << static_cast<int>(choice.order) << " of "
              << choice.parts;
        }
      }
    }
  }
}

SLUICE_EVERY_F32_PROFILE(AttentionSegmentsTest);

}  // namespace
}  // namespace sluice::kernels
