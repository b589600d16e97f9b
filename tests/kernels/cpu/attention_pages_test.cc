// Attention over pages of bf16 and int8 equals attention over the stored keys and values, and has
// the same bits in every batch, order and step.
#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "engine/model/kv_type.h"
#include "kernels/cpu/attention.h"
#include "tests/kernels/cpu/attention_fixture.h"
#include "tests/kernels/cpu/op_test.h"
#include "tests/support/invariance.h"

namespace sluice::kernels {
namespace {

using reference::AttentionShape;
using Sequence = SequenceCase<float>;

constexpr int32_t kSegment = kSegmentTokens;

// Returns the sequence with the keys and values as pages of the type store them.
Sequence AsStored(Sequence c, const AttentionShape& shape, KvType type) {
  const auto heads = static_cast<int32_t>(c.length() * shape.kv_heads);
  const auto dim = static_cast<int32_t>(shape.head_dim);
  KvLayer kv = {nullptr, nullptr, heads, dim, type};
  std::vector<float> k = UnwrittenPages(kv, 1), v(k);
  kv.k = k.data();
  kv.v = v.data();
  for (int32_t head = 0; head < heads; ++head) {
    StoreKey(kv, 0, head, &c.k[head * dim]);
    StoreValue(kv, 0, head, &c.v[head * dim]);
    for (int32_t d = 0; d < dim; ++d) {
      c.k[head * dim + d] = KeyAt(kv, 0, head, d);
      c.v[head * dim + d] = ValueAt(kv, 0, head, d);
    }
  }
  return c;
}

class AttentionPagesTest : public OpTest {
 protected:
  AttentionPagesTest() : seed_(std::random_device()()), random_(seed_) {}

  // Calls body() for both types.
  template <typename Body>
  void ForTypes(const Body& body) {
    for (const KvType type : {KvType::kBF16, KvType::kInt8}) {
      SCOPED_TRACE(testing::Message() << NameOf(type) << ", seed " << seed_);
      type_ = type;
      body();
    }
  }

  // Alternates between one and two threads, and between all orders.
  auto Runner() {
    return [this](const AttentionShape& shape, const std::vector<Sequence>& cases, bool causal,
                  const XsaCase& xsa) {
      ++runs_;
      return RunAttention(runs_ % 2 == 0 ? One() : Two(), random_, shape, cases, causal, xsa,
                          kAttentionOrders[runs_ % std::size(kAttentionOrders)], type_);
    };
  }

  std::vector<Sequence> Stored(const AttentionShape& shape,
                               const std::vector<std::pair<int32_t, int32_t>>& places) {
    std::vector<Sequence> cases;
    for (const auto& [first, count] : places) {
      cases.push_back(AsStored(RandomSequence<float>(random_, shape, first, count), shape, type_));
    }
    return cases;
  }

  const uint64_t seed_;
  std::mt19937_64 random_;
  KvType type_ = KvType::kBF16;

 private:
  int runs_ = 0;
};

TEST_P(AttentionPagesTest, EqualsTheReferenceOfTheStoredValues) {
  ForTypes([&] {
    for (const AttentionShape& shape : kAttentionShapes) {
      const auto cases =
          Stored(shape, {{0, 1}, {0, 16}, {0, 70}, {15, 1}, {16, 1}, {17, 3}, {100, 33}, {199, 1}});
      for (const bool causal : {true, false}) {
        ExpectAttentionEqualsReference(Runner(), shape, cases, causal, {});
      }
      for (const XsaForm form : {XsaForm::kNorm, XsaForm::kSquared}) {
        ExpectAttentionEqualsReference(Runner(), shape, cases, true, {form, 1e-6f, {}, true});
      }
    }
  });
}

TEST_P(AttentionPagesTest, EqualsTheReferenceAcrossSegments) {
  ForTypes([&] {
    for (const AttentionShape& shape : {AttentionShape{4, 2, 20}, AttentionShape{3, 1, 64}}) {
      const auto cases = Stored(shape, {{kSegment - 1, 1},
                                        {kSegment, 1},
                                        {kSegment - 3, 7},
                                        {0, kSegment + 40},
                                        {3 * kSegment, 9}});
      constexpr int kOrders = std::size(kAttentionOrders);
      for (const bool causal : {true, false}) {
        ExpectAttentionEqualsReference(Runner(), shape, cases, causal, {}, kOrders);
      }
      ExpectAttentionEqualsReference(Runner(), shape, cases, true, {XsaForm::kNorm, 1e-6f},
                                     kOrders);
    }
  });
}

TEST_P(AttentionPagesTest, ShapedScoresEqualTheReference) {
  ForTypes([&] {
    AttentionShape window = {4, 2, 20};
    window.window = 23;
    AttentionShape silu = {4, 2, 20};
    silu.silu_share = 1.0 / 64;
    AttentionShape cap = {4, 2, 20};
    cap.soft_cap = 1.5;
    for (const AttentionShape& shape : {window, silu, cap}) {
      const auto cases = Stored(shape, {{0, 70}, {17, 3}, {199, 1}, {kSegment + 20, 9}});
      for (const bool causal : {true, false}) {
        ExpectAttentionEqualsReference(Runner(), shape, cases, causal, {});
      }
    }
  });
}

TEST_P(AttentionPagesTest, AllOrdersAndThreadsGiveTheSameBits) {
  ForTypes([&] {
    for (int trial = 0; trial < 4; ++trial) {
      const AttentionShape shape = kAttentionShapes[random_() % std::size(kAttentionShapes)];
      std::vector<Sequence> cases;
      for (int i = RandomInt(random_, 1, 4); i > 0; --i) {
        cases.push_back(RandomSequence<float>(random_, shape, RandomInt(random_, 0, 3000),
                                              RandomInt(random_, 1, trial % 2 == 0 ? 1 : 60),
                                              3.0f));
      }
      const XsaCase xsa = {trial % 2 == 0 ? XsaForm::kOff : XsaForm::kNorm, 1e-6f, {}, false};
      const auto expected =
          RunAttention(One(), random_, shape, cases, true, xsa, kAttentionOrders[1], type_);
      for (const AttentionChoice& choice : kAttentionOrders) {
        for (const Context& context : {One(), Two()}) {
          const auto got = RunAttention(context, random_, shape, cases, true, xsa, choice, type_);
          for (size_t i = 0; i < cases.size(); ++i) {
            EXPECT_TRUE(SameBits(got.out[i], expected.out[i]))
                << "sequence " << i << ", order " << static_cast<int>(choice.order) << " of "
                << choice.parts;
          }
        }
      }
    }
  });
}

TEST_P(AttentionPagesTest, PrefillAndDecodeGiveTheSameBits) {
  constexpr int32_t kPositions[] = {
      0, 1, 15, 16, kSegment - 1, kSegment, 2 * kSegment - 1, 2 * kSegment};
  ForTypes([&] {
    for (const AttentionShape& shape : {AttentionShape{4, 4, 8}, AttentionShape{6, 2, 64}}) {
      ExpectPrefillAndDecodeAgree<float>(Runner(), random_, shape, {.form = XsaForm::kNorm},
                                         2 * kSegment + 30, kPositions, {1, 25});
    }
  });
}

// A row of the op is a whole sequence, padded to a common width.
TEST_P(AttentionPagesTest, SequencesDoNotDependOnTheirBatchPagesOrThreads) {
  const AttentionShape shape = {4, 2, 20};
  ForTypes([&] {
    const auto run = Runner();
    std::vector<Sequence> cases;
    for (int i = 0; i < 12; ++i) {
      cases.push_back(RandomSequence<float>(random_, shape, RandomInt(random_, 0, 90),
                                            RandomInt(random_, 1, 40)));
    }
    const RowsOp op = [&](std::span<const int32_t> rows) {
      std::vector<Sequence> batch;
      for (const int32_t row : rows) batch.push_back(cases[row]);
      std::vector<float> out;
      for (std::vector<float>& sequence : run(shape, batch, true, {}).out) {
        sequence.resize(40 * shape.q_heads * shape.head_dim, 0.0f);
        out.insert(out.end(), sequence.begin(), sequence.end());
      }
      return out;
    };
    EXPECT_TRUE(RowsAreInvariant(op, {.rows = 12, .max_batch = 24, .seed = seed_}));
  });
}

TEST_P(AttentionPagesTest, PositionsThatARowDoesNotSeeDoNotInfluenceIt) {
  ForTypes([&] {
    ExpectLaterPositionsDoNotInfluenceARow<float>(Runner(), random_, {4, 2, 24});
    ExpectPositionsBeforeTheWindowDoNotInfluenceARow<float>(Runner(), random_, {4, 2, 24});
  });
}

SLUICE_EVERY_F32_PROFILE(AttentionPagesTest);

}  // namespace
}  // namespace sluice::kernels
