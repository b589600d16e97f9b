// Tests kernels on rows that are columns of a wider buffer. They must have the bits of contiguous
// rows.
#include "kernels/cuda/activation.h"
#include "kernels/cuda/mix.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/rope.h"
#include "tests/kernels/cuda/op_test.h"

namespace sluice::kernels::cuda {
namespace {

// The rows of several arrays next to each other, between columns that no kernel may read or change.
template <typename T>
class StrideTest : public OpTest {
 protected:
  static constexpr int32_t kRows = 11;
  static constexpr int64_t kBetween = 8;

  // Puts the arrays [kRows, widths[i]] next to each other and returns their places.
  std::vector<T*> PutSideBySide(const std::vector<std::vector<T>>& arrays) {
    stride_ = 0;
    for (const auto& array : arrays) stride_ += std::ssize(array) / kRows + kBetween;
    before_.assign(kRows * stride_, Narrow<T>(kPoison));
    std::vector<int64_t> firsts;
    int64_t first = 0;
    for (const auto& array : arrays) {
      const int64_t width = std::ssize(array) / kRows;
      for (int32_t r = 0; r < kRows; ++r) {
        std::copy_n(array.begin() + r * width, width, before_.begin() + r * stride_ + first);
      }
      firsts.push_back(first);
      first += width + kBetween;
    }
    whole_ = lab_.Put(before_);
    std::vector<T*> places;
    for (const int64_t begin : firsts) places.push_back(whole_ + begin);
    return places;
  }
  // Returns the array of `width` columns at `place`, and expects the columns after it unchanged.
  std::vector<T> Take(const T* place, int64_t width) {
    const std::vector<T> now = lab_.Get(whole_, kRows * stride_);
    const int64_t first = place - whole_;
    std::vector<T> values;
    for (int32_t r = 0; r < kRows; ++r) {
      const auto row = now.begin() + r * stride_;
      values.insert(values.end(), row + first, row + first + width);
      EXPECT_TRUE(SameBits<T>({row + first + width, row + first + width + kBetween},
                              std::vector<T>(kBetween, Narrow<T>(kPoison))))
          << "row " << r << " is changed after its end";
    }
    return values;
  }

  int64_t stride_ = 0;
  std::vector<T> before_;
  T* whole_ = nullptr;
};
TYPED_TEST_SUITE(StrideTest, DTypes);

TYPED_TEST(StrideTest, NormsOfHeads) {
  using T = TypeParam;
  for (const auto& [groups, dim] : {std::pair(4, 64), {3, 24}, {2, 256}, {1, 15}}) {
    const auto x = RandomValues<T>(this->random_, this->kRows * groups * dim);
    NormArgs<T> args = {.x = this->lab_.Put(x),
                        .eps = 1e-6f,
                        .dim = dim,
                        .groups = groups,
                        .rows = this->Live(this->kRows),
                        .out = this->lab_.template Room<T>(x.size())};
    RmsNorm(this->lab_.stream(), args);
    const std::vector<T> expected = this->lab_.Get(args.out, x.size());
    T* const place = this->PutSideBySide({x, x})[1];
    args.x = args.out = place;
    args.stride = this->stride_;
    RmsNorm(this->lab_.stream(), args);
    EXPECT_TRUE(SameBits(this->Take(place, groups * dim), expected)) << groups << " x " << dim;
  }
}

TYPED_TEST(StrideTest, GainsOfHeads) {
  using T = TypeParam;
  constexpr int32_t kDim = 96, kRepeat = 24;
  const auto x = RandomValues<T>(this->random_, this->kRows * kDim);
  MixArgs<T> args = {.a = this->lab_.Put(x),
                     .a_weight = this->lab_.Put(RandomValues<T>(this->random_, kDim / kRepeat)),
                     .repeat = kRepeat,
                     .dim = kDim,
                     .rows = this->Live(this->kRows),
                     .out = this->lab_.template Room<T>(x.size())};
  Mix(this->lab_.stream(), args);
  const std::vector<T> expected = this->lab_.Get(args.out, x.size());
  T* const place = this->PutSideBySide({x, x})[1];
  args.a = args.out = place;
  args.stride = this->stride_;
  Mix(this->lab_.stream(), args);
  EXPECT_TRUE(SameBits(this->Take(place, kDim), expected));
}

TYPED_TEST(StrideTest, GatedActivations) {
  using T = TypeParam;
  for (const int32_t dim : {96, 31}) {
    const auto gate = RandomValues<T>(this->random_, this->kRows * dim);
    const auto up = RandomValues<T>(this->random_, this->kRows * dim);
    ActivationArgs<T> args = {.activation = Activation::kSilu,
                              .in = this->lab_.Put(gate),
                              .up = this->lab_.Put(up),
                              .dim = dim,
                              .rows = this->Live(this->kRows),
                              .out = this->lab_.template Room<T>(gate.size())};
    Activate(this->lab_.stream(), args);
    const std::vector<T> expected = this->lab_.Get(args.out, gate.size());
    const std::vector<T*> places = this->PutSideBySide({gate, up});
    args.in = places[0];
    args.up = places[1];
    args.stride = this->stride_;
    args.out = this->lab_.template Room<T>(gate.size());
    Activate(this->lab_.stream(), args);
    EXPECT_TRUE(SameBits(this->lab_.Get(args.out, gate.size()), expected)) << dim;
  }
}

TYPED_TEST(StrideTest, RotatedHeads) {
  using T = TypeParam;
  constexpr int32_t kHeads = 4, kKvHeads = 2, kDim = 32;
  const int32_t rows = this->kRows, cache = 2 * kPageTokens * kKvHeads * kDim;
  std::vector<int32_t> slots(rows);
  for (int32_t r = 0; r < rows; ++r) slots[r] = 2 * r;
  const auto q = RandomValues<T>(this->random_, rows * kHeads * kDim);
  const auto k = RandomValues<T>(this->random_, rows * kKvHeads * kDim);
  const auto v = RandomValues<T>(this->random_, rows * kKvHeads * kDim);
  const std::vector<T> blank(cache, Narrow<T>(0.0f));
  RopeArgs<T> args = {.cos = this->lab_.Put(RandomValues<float>(this->random_, rows * kDim / 2)),
                      .sin = this->lab_.Put(RandomValues<float>(this->random_, rows * kDim / 2)),
                      .rotary_dim = kDim,
                      .positions = this->lab_.Put(slots),
                      .kv_slots = this->lab_.Put(slots),
                      .q_heads = kHeads,
                      .q = this->lab_.Put(q),
                      .k = this->lab_.Put(k),
                      .v = this->lab_.Put(v),
                      .kv = {this->lab_.Put(blank), this->lab_.Put(blank), kKvHeads, kDim},
                      .rows = this->Live(rows)};
  for (int32_t& position : slots) position /= 2;
  args.positions = this->lab_.Put(slots);
  RopeAndStore(this->lab_.stream(), args);
  const auto expected_q = this->lab_.Get(args.q, q.size());
  const auto expected_k = this->lab_.Get(args.kv.k, cache);
  const auto expected_v = this->lab_.Get(args.kv.v, cache);
  const std::vector<T*> places = this->PutSideBySide({q, k, v});
  args.q = places[0];
  args.k = places[1];
  args.v = places[2];
  args.stride = this->stride_;
  args.kv = {this->lab_.Put(blank), this->lab_.Put(blank), kKvHeads, kDim};
  RopeAndStore(this->lab_.stream(), args);
  EXPECT_TRUE(SameBits(this->Take(places[0], kHeads * kDim), expected_q));
  EXPECT_TRUE(SameBits(this->lab_.Get(args.kv.k, cache), expected_k));
  EXPECT_TRUE(SameBits(this->lab_.Get(args.kv.v, cache), expected_v));
}

}  // namespace
}  // namespace sluice::kernels::cuda
