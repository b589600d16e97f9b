// Attention with windows, soft caps and relative biases.
#include <random>
#include <vector>

#include "kernels/cuda/attention.h"
#include "tests/kernels/cuda/attention_fixture.h"

namespace sluice::kernels::cuda {
namespace {

using reference::AttentionShape;

template <typename T>
class AttentionShapeTest : public OpTest {
 protected:
  auto Runner() {
    return [this](const AttentionShape& shape, const std::vector<SequenceCase<T>>& cases,
                  bool causal, const XsaCase& xsa) {
      return RunAttention(lab_, random_, shape, cases, causal, xsa);
    };
  }
};
TYPED_TEST_SUITE(AttentionShapeTest, DTypes);

TYPED_TEST(AttentionShapeTest, ShapedScoresEqualTheReference) {
  ExpectShapedScoresEqualReference<TypeParam>(this->Runner(), this->random_, 12);
}

// The widths of heads and limits of shared memory select every variant of the kernels. With this
// number of processors the second sequence is divided.
TYPED_TEST(AttentionShapeTest, EveryVariantEqualsTheReference) {
  for (const int64_t dim : {63, 64, 127, 128, 255, 256}) {
    for (const int32_t kib : {99, 163, 227}) {
      const AttentionShape shape = {
          .q_heads = 2, .kv_heads = 1, .head_dim = dim, .window = 550, .soft_cap = 1.5};
      const auto run = [&](const AttentionShape& heads,
                           const std::vector<SequenceCase<TypeParam>>& cases, bool causal,
                           const XsaCase& xsa) {
        return RunAttention(this->lab_, this->random_, heads, cases, causal, xsa,
                            {.shared_limit = kib << 10, .processors = 132});
      };
      SCOPED_TRACE(testing::Message() << "within " << kib << " KiB");
      ExpectAttentionEqualsReference<TypeParam>(
          run, shape, RandomSequences<TypeParam>(this->random_, shape, {{0, 5}, {600, 1}}), true,
          {});
    }
  }
}

TYPED_TEST(AttentionShapeTest, PrefillAndDecodeAgree) {
  for (const int64_t window : {17, 300, 512}) {
    SCOPED_TRACE(window);
    const AttentionShape shape = {.q_heads = 2, .kv_heads = 1, .head_dim = 24, .window = window};
    const int32_t positions[] = {481, 511, 529};
    ExpectPrefillAndDecodeAgree<TypeParam>(this->Runner(), this->random_, shape, {}, 540, positions,
                                           {1, 11}, 480);
  }
}

TYPED_TEST(AttentionShapeTest, PositionsBeforeTheWindowDoNotInfluenceARow) {
  for (const AttentionShape& shape : {AttentionShape{4, 2, 24}, {1, 1, 128}}) {
    ExpectPositionsBeforeTheWindowDoNotInfluenceARow<TypeParam>(this->Runner(), this->random_,
                                                                shape);
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
