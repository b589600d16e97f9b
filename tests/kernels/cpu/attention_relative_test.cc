// Attention with tables of relative positions (disentangled attention).
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/cpu/attention.h"
#include "tests/kernels/common/relative_heads.h"
#include "tests/kernels/cpu/attention_fixture.h"
#include "tests/kernels/cpu/op_test.h"
#include "tests/support/invariance.h"

namespace sluice::kernels {
namespace {

using reference::AttentionShape;
using Sequence = SequenceCase<float>;

class AttentionRelativeTest : public OpTest {
 protected:
  // Alternates between one and two threads, between all orders, and between rows in any order and
  // one after another.
  AttentionOutputs<float> Run(const AttentionShape& shape, const std::vector<Sequence>& cases,
                              bool causal, const XsaCase& xsa) {
    ++runs_;
    return RunAttention(runs_ % 2 == 0 ? One() : Two(), random_, shape, cases, causal, xsa,
                        kAttentionOrders[runs_ % std::size(kAttentionOrders)], KvType::kF32,
                        runs_ % 3 == 0 ? KeysIn::kRows : KeysIn::kOrderedRows);
  }
  auto Runner() {
    return [this](const auto&... arguments) { return Run(arguments...); };
  }
  std::vector<Sequence> Draw(const AttentionShape& shape, const std::vector<int32_t>& lengths) {
    std::vector<std::pair<int32_t, int32_t>> places;
    for (const int32_t length : lengths) places.emplace_back(0, length);
    return RandomSequences<float>(random_, shape, places);
  }

  const uint64_t seed_ = std::random_device()();
  std::mt19937_64 random_{seed_};

 private:
  int runs_ = 0;
};

TEST_P(AttentionRelativeTest, EqualsTheReferenceForEveryTableAndSizeOfHeads) {
  SCOPED_TRACE(seed_);
  for (const Tables tables : {Tables::kBoth, Tables::kKeys, Tables::kQueries}) {
    for (const int64_t head_dim : {1, 8, 20, 37, 64, 136}) {
      const int64_t span = 1 + RandomInt(random_, 0, 70);
      const double growth = random_() % 2 == 0 ? 1.0 : 1.0 + 0.01 * RandomInt(random_, 1, 50);
      const RelativeHeads heads(random_, 1 + RandomInt(random_, 0, 3), head_dim, span, growth, 130,
                                tables);
      SCOPED_TRACE(testing::Message() << "span " << span << ", growth " << growth);
      const std::vector<int32_t> lengths = {
          1, 2, 15, 16, 17, 31, 32, 33, 64, 65, RandomInt(random_, 1, 130)};
      ExpectAttentionEqualsReference(Runner(), heads.shape, Draw(heads.shape, lengths), false, {});
    }
  }
}

// Each length reaches other distances in both directions, and so other rows of the tables.
TEST_P(AttentionRelativeTest, EqualsTheReferenceUpTo512TokensOfHeadsOf64) {
  SCOPED_TRACE(seed_);
  const RelativeHeads heads(random_, 2, 64, 256, std::pow(511.0 / 128, 1.0 / 127), 512);
  const std::vector<int32_t> lengths = {1, 127, 128, 129, 130, 255, 256, 257, 511, 512};
  ExpectAttentionEqualsReference(Runner(), heads.shape, Draw(heads.shape, lengths), false, {});
}

// Tables whose rows are logarithmic after half the span, so that neighbouring distances may have
// rows that are not neighbours. The length is one that reaches many of them.
struct SparseRows {
  int64_t span, max_distance;
  int32_t length;
};
constexpr SparseRows kSparseRows[] = {
    {256, 160, 160}, {512, 384, 384}, {512, 512, 368}, {1024, 1024, 728}};

TEST_P(AttentionRelativeTest, TablesWithMoreRowsThanDistancesEqualTheReferenceInAnyBatch) {
  SCOPED_TRACE(seed_);
  for (const auto& [span, max_distance, length] : kSparseRows) {
    SCOPED_TRACE(testing::Message() << "span " << span << ", maximum distance " << max_distance);
    const auto half = static_cast<double>(span) / 2;
    const double growth = std::pow((static_cast<double>(max_distance) - 1) / half, 1 / (half - 1));
    const int32_t longer = 2 * length;
    const RelativeHeads heads(random_, 1, 8, span, growth, longer);
    const std::vector<Sequence> cases = Draw(heads.shape, {length, longer});
    const std::vector<Sequence> alone = {cases[0]};
    ExpectAttentionEqualsReference(Runner(), heads.shape, alone, false, {});
    const auto run = [&](const std::vector<Sequence>& sequences) {
      return RunAttention(Two(), random_, heads.shape, sequences, false, {}, {}, KvType::kF32,
                          KeysIn::kOrderedRows)
          .out[0];
    };
    EXPECT_TRUE(SameBits(run(alone), run(cases)));
  }
}

TEST_P(AttentionRelativeTest, EqualsTheReferenceAcrossSegmentsWithCapsBiasesAndWindows) {
  SCOPED_TRACE(seed_);
  for (const int64_t window : {0, 40, 600}) {
    RelativeHeads heads(random_, 2, 12, 40, 1.02, 2 * kSegmentTokens + 50);
    heads.shape.window = window;
    heads.shape.soft_cap = 1.5;
    heads.shape.bias_positions = 2 * kSegmentTokens + 60;
    const std::vector<float> bias =
        RandomFloats(random_, 2 * (2 * heads.shape.bias_positions + 16));
    heads.shape.bias = bias;
    constexpr int32_t kCut = kSegmentTokens;
    const std::vector<int32_t> lengths = {kCut, kCut + 1, 2 * kCut + RandomInt(random_, 1, 40), 5};
    const XsaCase xsa = {window == 40 ? XsaForm::kNorm : XsaForm::kOff, 1e-6f, {}, false};
    ExpectAttentionEqualsReference(Runner(), heads.shape, Draw(heads.shape, lengths), false, xsa);
  }
}

// A large batch has the bits of its sequences one by one: other servers have returned other results
// for large batches.
TEST_P(AttentionRelativeTest, ASequenceHasTheSameBitsInAnyBatchOrderAndNumberOfThreads) {
  SCOPED_TRACE(seed_);
  const RelativeHeads heads(random_, 3, 20, 24, 1.1, 140);
  std::vector<int32_t> lengths;
  for (int i = 0; i < 40; ++i) lengths.push_back(RandomInt(random_, 1, 140));
  const std::vector<Sequence> cases = Draw(heads.shape, lengths);
  std::vector<std::vector<float>> expected;
  for (const Sequence& each : cases) {
    expected.push_back(RunAttention(One(), random_, heads.shape, {each}, false, {},
                                    kAttentionOrders[1], KvType::kF32, KeysIn::kOrderedRows)
                           .out[0]);
  }
  ThreadPool pool(3);
  for (const AttentionChoice& choice : kAttentionOrders) {
    for (const Context& context : {One(), Two(), Context{GetParam(), &pool}}) {
      for (const KeysIn keys_in : {KeysIn::kRows, KeysIn::kOrderedRows}) {
        const auto got = RunAttention(context, random_, heads.shape, cases, false, {}, choice,
                                      KvType::kF32, keys_in);
        for (size_t i = 0; i < cases.size(); ++i) {
          ASSERT_TRUE(SameBits(got.out[i], expected[i]))
              << "sequence " << i << " of " << cases[i].count << " tokens, "
              << context.pool->threads() << " threads, order " << static_cast<int>(choice.order)
              << " of " << choice.parts << ", rows " << static_cast<int>(keys_in);
        }
      }
    }
  }
}

// The parts of one sequence are computed by many threads.
TEST_P(AttentionRelativeTest, ASequenceInPartsHasTheSameBits) {
  SCOPED_TRACE(seed_);
  constexpr AttentionChoice kParts = {AttentionOrder::kSplit, 2};
  ThreadPool pool(52);
  const RelativeHeads heads(random_, 2, 12, 40, 1.02, kSegmentTokens + 8);
  const auto cases = Draw(heads.shape, {kSegmentTokens + 8});
  const auto expected = RunAttention(One(), random_, heads.shape, cases, false, {},
                                     kAttentionOrders[1], KvType::kF32, KeysIn::kOrderedRows);
  const auto got = RunAttention({GetParam(), &pool}, random_, heads.shape, cases, false, {}, kParts,
                                KvType::kF32, KeysIn::kOrderedRows);
  EXPECT_TRUE(SameBits(got.out[0], expected.out[0]));
}

// Keys in pages of bf16 and int8 are rounded, but their products with tables are not.
TEST_P(AttentionRelativeTest, NarrowKeysChangeScoresOnlyByTheirRounding) {
  SCOPED_TRACE(seed_);
  const RelativeHeads heads(random_, 2, 64, 40, 1.1, 200);
  const auto cases = Draw(heads.shape, {200});
  const auto expected = ReferenceAttention(heads.shape, cases[0], false, {}).out;
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (const KvType type : {KvType::kBF16, KvType::kInt8}) {
    const auto got =
        RunAttention(Two(), random_, heads.shape, cases, false, {}, {}, type, KeysIn::kOrderedRows);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(got.out[0][i], expected[i], 0.06 * largest);
    }
  }
}

SLUICE_EVERY_F32_PROFILE(AttentionRelativeTest);

}  // namespace
}  // namespace sluice::kernels
