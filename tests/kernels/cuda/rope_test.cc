#include "kernels/cuda/rope.h"

#include <numeric>

#include "kernels/reference/rope.h"
#include "tests/kernels/cuda/op_test.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int32_t kMaxPositions = 70, kPages = 5;

template <typename T>
class RopeTest : public OpTest {
 protected:
  // Uses rows at random positions, each with its own slot.
  void ExpectReference(int32_t rows, int32_t q_heads, int32_t kv_heads, int32_t dim,
                       int32_t rotary_dim) {
    SCOPED_TRACE(testing::Message() << q_heads << "/" << kv_heads << " heads of " << dim
                                    << ", rotary " << rotary_dim << ", seed " << kSeed);
    const std::vector<double> frequencies =
        rotary_dim == 0 ? std::vector<double>()
                        : reference::InverseFrequencies(rotary_dim, 1e4, {});
    std::vector<float> cos, sin;
    for (int32_t p = 0; p < kMaxPositions; ++p) {
      for (double f : frequencies) {
        cos.push_back(static_cast<float>(std::cos(p * f)));
        sin.push_back(static_cast<float>(std::sin(p * f)));
      }
    }
    std::vector<int32_t> positions(rows), slots(kPages * kPageTokens);
    for (int32_t& p : positions) p = RandomInt(random_, 0, kMaxPositions - 1);
    std::iota(slots.begin(), slots.end(), 0);
    std::shuffle(slots.begin(), slots.end(), random_);
    slots.resize(rows);
    const auto q = RandomValues<T>(random_, rows * q_heads * dim);
    const auto k = RandomValues<T>(random_, rows * kv_heads * dim);
    const auto v = RandomValues<T>(random_, rows * kv_heads * dim);
    const int64_t cache = int64_t{kPages} * kv_heads * kPageTokens * dim;
    const std::vector<T> blank(cache, Narrow<T>(7.0f));
    const RopeArgs<T> args = {.cos = lab_.Put(cos),
                              .sin = lab_.Put(sin),
                              .rotary_dim = rotary_dim,
                              .positions = lab_.Put(positions),
                              .kv_slots = lab_.Put(slots),
                              .q_heads = q_heads,
                              .q = lab_.Put(q),
                              .k = lab_.Put(k),
                              .v = lab_.Put(v),
                              .kv = {lab_.Put(blank), lab_.Put(blank), kv_heads, dim},
                              .rows = Live(rows)};
    RopeAndStore(lab_.stream(), args);

    const auto rotated = [&](const std::vector<T>& x, int32_t heads) {
      std::vector<double> out = ToDouble(x);
      for (int32_t h = 0; h < rows * heads; ++h) {
        reference::Rotate(std::span(out).subspan(h * dim, dim), frequencies, positions[h / heads]);
      }
      return out;
    };
    EXPECT_TRUE(Matches(Op::kRowWise, lab_.Get(args.q, q.size()), rotated(q, q_heads)));
    const std::vector<double> rotated_k = rotated(k, kv_heads);
    std::vector<double> cache_k(cache, 7.0), cache_v(cache, 7.0);
    for (int32_t r = 0; r < rows; ++r) {
      for (int32_t i = 0; i < kv_heads * dim; ++i) {
        const int64_t to = args.kv.Offset(slots[r], i / dim) + i % dim;
        cache_k[to] = rotated_k[r * kv_heads * dim + i];
        cache_v[to] = Widen(v[r * kv_heads * dim + i]);
      }
    }
    EXPECT_TRUE(Matches(Op::kRowWise, lab_.Get(args.kv.k, cache), cache_k));
    EXPECT_EQ(ToDouble(lab_.Get(args.kv.v, cache)), cache_v);
  }
};
TYPED_TEST_SUITE(RopeTest, DTypes);

TYPED_TEST(RopeTest, RotatesAndStoresLikeTheReference) {
  this->ExpectReference(9, 4, 2, 16, 16);
  this->ExpectReference(20, 3, 1, 12, 8);
  this->ExpectReference(33, 2, 2, 64, 64);
  this->ExpectReference(1, 1, 1, 2, 2);
}

TYPED_TEST(RopeTest, WithoutRotationItOnlyStores) { this->ExpectReference(5, 2, 1, 7, 0); }

TYPED_TEST(RopeTest, NoRowsWriteNothing) { this->ExpectReference(0, 2, 1, 8, 8); }

}  // namespace
}  // namespace sluice::kernels::cuda
