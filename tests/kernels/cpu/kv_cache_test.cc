// The keys and values that pages store.
#include "kernels/cpu/kv_cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/rope.h"
#include "kernels/reference/int8.h"
#include "tests/kernels/cpu/attention_fixture.h"
#include "tests/kernels/cpu/op_test.h"

namespace sluice::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// The pages of one layer.
class Pages {
 public:
  Pages(KvType type, int32_t kv_heads, int32_t head_dim, int64_t pages)
      : kv_{nullptr, nullptr, kv_heads, head_dim, type}, k_(UnwrittenPages(kv_, pages)), v_(k_) {
    kv_.k = k_.data();
    kv_.v = v_.data();
  }
  const KvLayer& kv() const { return kv_; }

 private:
  KvLayer kv_;
  std::vector<float> k_, v_;
};

// Returns the bf16 value nearest to a finite number; of two, the one with an even last bit.
double NearestBF16(double x) {
  if (x == 0) return x;
  const double step = std::ldexp(1.0, std::max(std::ilogb(x), -126) - 7);
  return std::nearbyint(x / step) * step;
}

TEST(KvCacheTest, EachSlotHoldsItsKeyAndValueRounded) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (const KvType type : {KvType::kF32, KvType::kBF16, KvType::kInt8}) {
    const int32_t heads = RandomInt(random, 1, 3), dim = RandomInt(random, 1, 70);
    const int32_t slots = 3 * kPageTokens;
    const Pages pages(type, heads, dim, 3);
    std::vector<std::vector<float>> keys, values;
    for (int32_t i = 0; i < slots * heads; ++i) {
      const float scale = std::ldexp(1.0f, static_cast<int>(RandomInt(random, -30, 30)));
      keys.push_back(RandomFloats(random, dim, scale));
      values.push_back(RandomFloats(random, dim, scale));
      StoreKey(pages.kv(), i / heads, i % heads, keys.back().data());
      StoreValue(pages.kv(), i / heads, i % heads, values.back().data());
    }
    const auto expected = [&](const std::vector<float>& x, int32_t d) -> float {
      if (type == KvType::kF32) return x[d];
      if (type == KvType::kBF16) return static_cast<float>(NearestBF16(x[d]));
      const reference::Quantized quantized = reference::Quantize(x);
      return static_cast<float>(quantized.values[d]) * quantized.scale;
    };
    for (int32_t i = 0; i < slots * heads; ++i) {
      for (int32_t d = 0; d < dim; ++d) {
        ASSERT_EQ(KeyAt(pages.kv(), i / heads, i % heads, d), expected(keys[i], d));
        ASSERT_EQ(ValueAt(pages.kv(), i / heads, i % heads, d), expected(values[i], d));
      }
    }
  }
}

TEST(KvCacheTest, ValuesThatAreNotFiniteStaySoAndTinyValuesAreZero) {
  const Pages bf16(KvType::kBF16, 1, 4, 1), int8(KvType::kInt8, 1, 4, 1);
  const auto nan = std::bit_cast<float>(0x7F800001);  // its upper half has the bits of infinity
  const std::vector<float> odd = {1, nan, kInf, -kInf};
  StoreKey(bf16.kv(), 3, 0, odd.data());
  EXPECT_EQ(KeyAt(bf16.kv(), 3, 0, 0), 1);
  EXPECT_TRUE(std::isnan(KeyAt(bf16.kv(), 3, 0, 1)));
  EXPECT_EQ(KeyAt(bf16.kv(), 3, 0, 2), kInf);
  EXPECT_EQ(KeyAt(bf16.kv(), 3, 0, 3), -kInf);
  for (const float value : {nan, kInf, -kInf}) {
    const std::vector<float> key = {1, 2, value, 4};
    StoreValue(int8.kv(), 3, 0, key.data());
    for (int32_t d = 0; d < 4; ++d) EXPECT_TRUE(std::isnan(ValueAt(int8.kv(), 3, 0, d)));
  }
  const std::vector<float> tiny = {0x1p-101f, 0, -0x1p-120f, 0x1p-140f};
  StoreValue(int8.kv(), 3, 0, tiny.data());
  for (int32_t d = 0; d < 4; ++d) EXPECT_EQ(ValueAt(int8.kv(), 3, 0, d), 0);
}

class StoreTest : public OpTest {};

// The types of pages only round the stored values: rotations are the same as with pages of f32.
TEST_P(StoreTest, RotatedKeysAreRoundedOnce) {
  std::mt19937_64 random(7);
  constexpr int32_t kRows = 21, kHeads = 2, kDim = 20, kHalf = 6;
  const std::vector<float> cos = RandomFloats(random, kRows * kHalf),
                           sin = RandomFloats(random, kRows * kHalf),
                           k = RandomFloats(random, kRows * kHeads * kDim),
                           v = RandomFloats(random, kRows * kHeads * kDim);
  std::vector<int32_t> rows(kRows);
  std::iota(rows.begin(), rows.end(), 0);
  const Pages exact(KvType::kF32, kHeads, kDim, 2);
  const auto store = [&](const Pages& pages) {
    std::vector<float> q(kRows * kDim);
    RopeAndStore(Two(), {cos.data(), sin.data(), 2 * kHalf}, rows.data(), rows.data(), kRows, 1,
                 q.data(), k.data(), v.data(), pages.kv());
  };
  store(exact);
  for (const KvType type : {KvType::kBF16, KvType::kInt8}) {
    const Pages pages(type, kHeads, kDim, 2), one(type, 1, kDim, 1);
    store(pages);
    for (int32_t i = 0; i < kRows * kHeads; ++i) {
      std::vector<float> key;
      for (int32_t d = 0; d < kDim; ++d) key.push_back(KeyAt(exact.kv(), i / 2, i % 2, d));
      StoreKey(one.kv(), 0, 0, key.data());
      StoreValue(one.kv(), 0, 0, &v[i * kDim]);
      for (int32_t d = 0; d < kDim; ++d) {
        ASSERT_EQ(KeyAt(pages.kv(), i / 2, i % 2, d), KeyAt(one.kv(), 0, 0, d));
        ASSERT_EQ(ValueAt(pages.kv(), i / 2, i % 2, d), ValueAt(one.kv(), 0, 0, d));
      }
    }
  }
}

SLUICE_EVERY_F32_PROFILE(StoreTest);

}  // namespace
}  // namespace sluice::kernels
