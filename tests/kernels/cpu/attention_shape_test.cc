// Attention with windows, soft caps and relative biases.
#include <random>
#include <vector>

#include "kernels/cpu/attention.h"
#include "tests/kernels/cpu/attention_fixture.h"
#include "tests/kernels/cpu/op_test.h"
#include "tests/support/invariance.h"

namespace sluice::kernels {
namespace {

using reference::AttentionShape;
using Sequence = SequenceCase<float>;

class AttentionShapeTest : public OpTest {
 protected:
  // Alternates between one and two threads, and between all orders.
  auto Runner() {
    return [this](const AttentionShape& shape, const std::vector<Sequence>& cases, bool causal,
                  const XsaCase& xsa) {
      ++runs_;
      return RunAttention(runs_ % 2 == 0 ? One() : Two(), random_, shape, cases, causal, xsa,
                          kAttentionOrders[runs_ % std::size(kAttentionOrders)]);
    };
  }

  const uint64_t seed_ = std::random_device()();
  std::mt19937_64 random_{seed_};

 private:
  int runs_ = 0;
};

TEST_P(AttentionShapeTest, ShapedScoresEqualTheReference) {
  SCOPED_TRACE(seed_);
  ExpectShapedScoresEqualReference<float>(Runner(), random_, 40);
}

TEST_P(AttentionShapeTest, AllOrdersAndThreadsGiveTheSameBits) {
  SCOPED_TRACE(seed_);
  for (int trial = 0; trial < 6; ++trial) {
    std::vector<std::pair<int32_t, int32_t>> places;
    for (int i = RandomInt(random_, 1, 4); i > 0; --i) {
      places.emplace_back(RandomInt(random_, 0, 3000), RandomInt(random_, 1, trial % 2 ? 1 : 60));
    }
    const ShapedHeads heads(random_, 20, 3060);
    const auto cases = RandomSequences<float>(random_, heads.shape, places);
    const bool excludes = trial % 2 != 0 && heads.shape.silu_share == 0;
    const XsaCase xsa = {excludes ? XsaForm::kNorm : XsaForm::kOff, 1e-6f, {}, false};
    const auto expected =
        RunAttention(One(), random_, heads.shape, cases, true, xsa, kAttentionOrders[1]);
    for (const AttentionChoice& choice : kAttentionOrders) {
      for (const Context& context : {One(), Two()}) {
        const auto got = RunAttention(context, random_, heads.shape, cases, true, xsa, choice);
        for (size_t i = 0; i < cases.size(); ++i) {
          EXPECT_TRUE(SameBits(got.out[i], expected.out[i]))
              << "sequence " << i << ", order " << static_cast<int>(choice.order) << " of "
              << choice.parts << ", window " << heads.shape.window;
        }
      }
    }
  }
}

TEST_P(AttentionShapeTest, PrefillAndDecodeAgree) {
  SCOPED_TRACE(seed_);
  for (const int64_t window : {3, 17, 300, 512, 530}) {
    SCOPED_TRACE(window);
    const AttentionShape shape = {.q_heads = 4, .kv_heads = 2, .head_dim = 24, .window = window};
    const int32_t positions[] = {0, 15, 301, 511, 512, 529, 540};
    ExpectPrefillAndDecodeAgree<float>(Runner(), random_, shape, {}, 560, positions, {1, 5, 20});
  }
}

TEST_P(AttentionShapeTest, PositionsBeforeTheWindowDoNotInfluenceARow) {
  ExpectPositionsBeforeTheWindowDoNotInfluenceARow<float>(Runner(), random_, {4, 2, 24});
}

SLUICE_EVERY_F32_PROFILE(AttentionShapeTest);

}  // namespace
}  // namespace sluice::kernels
