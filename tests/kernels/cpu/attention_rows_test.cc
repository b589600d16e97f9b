// Attention over keys and values in the step's own rows has the same bits as over pages.
#include <random>
#include <utility>
#include <vector>

#include "engine/model/kv_type.h"
#include "kernels/cpu/attention.h"
#include "tests/kernels/cpu/attention_fixture.h"
#include "tests/kernels/cpu/op_test.h"

namespace sluice::kernels {
namespace {

using Sequence = SequenceCase<float>;

class AttentionRowsTest : public OpTest {
 protected:
  // Expects the bits of pages in every order, for 1 to 3 threads, and for rows in any order.
  void ExpectBitsOfPages(const reference::AttentionShape& shape, const std::vector<Sequence>& cases,
                         bool causal, const XsaCase& xsa, KvType type) {
    const auto expected =
        RunAttention(One(), random_, shape, cases, causal, xsa, kAttentionOrders[1], type);
    ThreadPool pool(3);
    for (const AttentionChoice& choice : kAttentionOrders) {
      for (const Context& context : {One(), Two(), Context{GetParam(), &pool}}) {
        for (const KeysIn keys_in : {KeysIn::kRows, KeysIn::kOrderedRows}) {
          const auto got =
              RunAttention(context, random_, shape, cases, causal, xsa, choice, type, keys_in);
          for (size_t i = 0; i < cases.size(); ++i) {
            ASSERT_TRUE(SameBits(got.out[i], expected.out[i]) &&
                        SameBits(got.cos_sim[i], expected.cos_sim[i]) &&
                        SameBits(got.proj_frac[i], expected.proj_frac[i]))
                << cases[i].count << " rows of " << shape.q_heads << "/" << shape.kv_heads
                << " heads, sequence " << i << ", " << NameOf(type) << ", "
                << context.pool->threads() << " threads, order " << static_cast<int>(choice.order)
                << " of " << choice.parts << ", rows " << static_cast<int>(keys_in) << ", window "
                << shape.window << ", seed " << seed_;
          }
        }
      }
    }
  }

  const uint64_t seed_ = std::random_device()();
  std::mt19937_64 random_{seed_};
};

TEST_P(AttentionRowsTest, WholeSequencesHaveTheBitsOfPages) {
  constexpr XsaForm kForms[] = {XsaForm::kOff, XsaForm::kNorm, XsaForm::kSquared};
  int trial = 0;
  for (const reference::AttentionShape& shape : kAttentionShapes) {
    for (const KvType type : {KvType::kF32, KvType::kBF16, KvType::kInt8}) {
      std::vector<std::pair<int32_t, int32_t>> places;
      for (const int32_t length : {1, kPageTokens - 1, kPageTokens, kPageTokens + 1, 70}) {
        places.emplace_back(0, length);
      }
      places.emplace_back(0, RandomInt(random_, 1, 200));
      const XsaCase xsa = {kForms[trial % 3], 1e-6f, {}, trial % 2 == 0};
      ExpectBitsOfPages(shape, RandomSequences<float>(random_, shape, places), trial % 4 == 0, xsa,
                        type);
      ++trial;
    }
  }
}

// Parts of a sequence are read by several threads, and a window hides whole segments.
TEST_P(AttentionRowsTest, SequencesOfSeveralSegmentsHaveTheBitsOfPages) {
  for (const int64_t window : {0, 40}) {
    const reference::AttentionShape shape = {
        .q_heads = 2, .kv_heads = 2, .head_dim = 12, .window = window};
    const std::vector<std::pair<int32_t, int32_t>> places = {
        {0, 2 * kSegmentTokens + RandomInt(random_, 1, 40)}, {0, 5}};
    const auto cases = RandomSequences<float>(random_, shape, places);
    ExpectBitsOfPages(shape, cases, false, {XsaForm::kNorm, 1e-6f, {}, true}, KvType::kF32);
  }
}

// With this many threads there is memory for the records of a whole sequence in parts. The parts
// are read out of order and folded by threads that may hold another head.
TEST_P(AttentionRowsTest, WholeSequencesInPartsHaveTheBitsOfPages) {
  constexpr int32_t kLength = kSegmentTokens + 8;
  constexpr AttentionChoice kParts = {AttentionOrder::kSplit, 2};
  ThreadPool pool(52);
  const reference::AttentionShape shape = {2, 2, 12};
  const AttentionSequence sequence = {0, kLength, nullptr, nullptr};
  const AttentionSizes sizes = {2, 2, 12, kLength, pool.threads(), false};
  ASSERT_EQ(AttentionSchedule(kParts, sizes, {&sequence, 1}).divided_queries(), 2 * kLength);
  const XsaCase xsa = {XsaForm::kNorm, 1e-6f, {}, true};
  for (int trial = 0; trial < 4; ++trial) {
    const auto cases = RandomSequences<float>(random_, shape, {{0, kLength}});
    const auto expected =
        RunAttention(One(), random_, shape, cases, false, xsa, kAttentionOrders[1]);
    const auto got = RunAttention({GetParam(), &pool}, random_, shape, cases, false, xsa, kParts,
                                  KvType::kF32, KeysIn::kOrderedRows);
    EXPECT_TRUE(SameBits(got.out[0], expected.out[0])) << "seed " << seed_;
    EXPECT_TRUE(SameBits(got.cos_sim[0], expected.cos_sim[0])) << "seed " << seed_;
  }
}

TEST_P(AttentionRowsTest, ShapedScoresHaveTheBitsOfPages) {
  for (int trial = 0; trial < 4; ++trial) {
    const ShapedHeads heads(random_, 20, 90);
    const auto cases =
        RandomSequences<float>(random_, heads.shape, {{0, 90}, {0, RandomInt(random_, 1, 90)}});
    ExpectBitsOfPages(heads.shape, cases, false, {}, KvType::kF32);
  }
}

SLUICE_EVERY_F32_PROFILE(AttentionRowsTest);

}  // namespace
}  // namespace sluice::kernels
