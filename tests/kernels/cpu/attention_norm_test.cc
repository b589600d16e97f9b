// The norm of the value that XSA excludes is computed once for the query heads of a KV head, also
// if a row's keys are divided into parts.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "base/ceil_div.h"
#include "kernels/cpu/kv_cache.h"
#include "kernels/cpu/simd/dispatch.h"
#include "tests/kernels/cpu/op_test.h"

namespace sluice::kernels {
namespace {

// A row of several query heads at the last of the positions, in one part for each segment.
class DividedRow {
 public:
  DividedRow(Profile profile, KvType type, std::mt19937_64& random)
      : kernels_(simd::AttentionFor(profile, type)),
        q_(RandomFloats(random, kHeads * kDim)),
        values_(RandomFloats(random, kPositions * kDim)),
        kv_{nullptr, nullptr, /*kv_heads=*/1, kDim, type} {
    const auto floats = static_cast<size_t>(kPages * kv_.page_bytes()) / sizeof(float);
    k_.resize(floats);
    v_.resize(floats);
    kv_.k = k_.data();
    kv_.v = v_.data();
    const std::vector<float> keys = RandomFloats(random, kPositions * kDim);
    for (int32_t i = 0; i < kPages; ++i) pages_.push_back(i);
    for (int32_t i = 0; i < kPositions; ++i) {
      StoreKey(kv_, i, 0, &keys[i * kDim]);
      StoreValue(kv_, i, 0, &values_[i * kDim]);
    }
  }

  // Computes the parts, then multiplies the row's own value by `factor`, and returns the outputs
  // that are merged from the parts and the changed value.
  std::vector<float> Run(float factor) {
    StoreOwnValue(1);
    simd::AttentionBlock block = Block();
    for (block.first_segment = 0; block.first_segment < kSegments; ++block.first_segment) {
      block.past_segment = block.first_segment + 1;
      kernels_.attend(block);
    }
    StoreOwnValue(factor);
    for (int64_t head = 0; head < kHeads; ++head) kernels_.fold(block, head);
    return out_;
  }

 private:
  static constexpr int32_t kHeads = 5, kDim = 20, kPositions = 2 * kSegmentTokens + 40;
  static constexpr int64_t kPages = CeilDiv(kPositions, kPageTokens), kSegments = 3;
  static constexpr int64_t kRecord = 32, kScores = kSegmentTokens + 16;
  static_assert(kRecord >= kDim + simd::kRecordTail);

  void StoreOwnValue(float factor) {
    std::vector<float> own(values_.end() - kDim, values_.end());
    for (float& value : own) value *= factor;
    StoreValue(kv_, kPositions - 1, 0, own.data());
  }

  simd::AttentionBlock Block() {
    simd::AttentionBlock block = {};
    block.q = q_.data();
    block.out = out_.data();
    block.row_stride = kHeads * kDim;
    block.heads = kHeads;
    block.rows = &kRow;
    block.count = 1;
    block.first_position = kPositions - 1;
    block.scale = 0.2f;
    block.kv = &kv_;
    block.pages = pages_.data();
    block.xsa = XsaForm::kNorm;
    block.xsa_eps = 1e-6f;
    block.fetch_pages = kPages;
    block.record_stride = kRecord;
    block.scores = scores_.data();
    block.score_stride = kScores;
    block.queries = queries_.data();
    block.segment_sums = sums_.data();
    block.running = sums_.data();
    block.own_values = own_.data();
    block.parts = parts_.data();
    return block;
  }

  static constexpr int32_t kRow = 0;
  const simd::AttentionKernels& kernels_;
  const std::vector<float> q_, values_;
  std::vector<float> k_, v_;
  KvLayer kv_;
  std::vector<int32_t> pages_;
  std::vector<float> out_ = std::vector<float>(kHeads * kDim);
  std::vector<float> scores_ = std::vector<float>(simd::kAttentionTile * kScores);
  std::vector<float> queries_ = std::vector<float>(simd::kAttentionTile * simd::kQueryRun);
  std::vector<float> sums_ = std::vector<float>(simd::kAttentionTile * kRecord);
  std::vector<float> own_ = std::vector<float>(simd::kAttentionRows * kDim);
  std::vector<float> parts_ = std::vector<float>(kSegments * kHeads * kRecord);
};

using AttentionNormTest = OpTest;

// The excluded part of y is (y . v) v / |v|^2. If each query head computed the norm again, this
// would not depend on a factor of v. With the norm that the part has written, it does.
TEST_P(AttentionNormTest, MergedQueriesTakeTheNormThatTheirPartComputed) {
  constexpr uint64_t kSeed = 74;
  for (const KvType type : {KvType::kF32, KvType::kBF16, KvType::kInt8}) {
    SCOPED_TRACE(testing::Message() << "type " << static_cast<int>(type) << ", seed " << kSeed);
    std::mt19937_64 random(kSeed);
    DividedRow row(GetParam(), type, random);
    const std::vector<float> whole = row.Run(0), once = row.Run(1), twice = row.Run(2);
    float largest = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      const float excluded = once[i] - whole[i];
      largest = std::max(largest, std::abs(excluded));
      EXPECT_NEAR(twice[i] - whole[i], 4 * excluded, 1e-5f) << i;
    }
    EXPECT_GT(largest, 1e-3f);
  }
}

SLUICE_EVERY_F32_PROFILE(AttentionNormTest);

}  // namespace
}  // namespace sluice::kernels
