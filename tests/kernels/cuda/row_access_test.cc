// Rows that allow accesses of 16 bytes, and the same rows behind an address that does not: every op
// gives the same bits.
#include "kernels/cuda/activation.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/logits.h"
#include "kernels/cuda/mix.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/rope.h"
#include "kernels/cuda/xsa.h"
#include "tests/kernels/cuda/op_test.h"

namespace sluice::kernels::cuda {
namespace {

template <typename T>
class RowAccessTest : public OpTest {
 protected:
  // Calls run(shift), which returns an op's output for operands behind an aligned address.
  template <typename Run>
  void ExpectSameBits(const Run& run) {
    const auto aligned = run(0);
    for (const int32_t shift : {1, 3}) {
      EXPECT_TRUE(SameBits(run(shift), aligned)) << "shift " << shift << ", seed " << kSeed;
    }
    lab_.Clear();
  }
  std::vector<T> Values(int64_t n) { return RandomValues<T>(random_, n); }
  // Returns a width whose rows allow wide accesses.
  int32_t AnyWidth() { return 8 * RandomInt(random_, 1, 90); }
};
TYPED_TEST_SUITE(RowAccessTest, DTypes);

TYPED_TEST(RowAccessTest, Norms) {
  using T = TypeParam;
  for (const int32_t dim : {8, 64, 248, 256, 264, 1000, 8192, 8200, this->AnyWidth()}) {
    SCOPED_TRACE(dim);
    const int32_t rows = RandomInt(this->random_, 1, 20), size = rows * dim;
    const auto x = this->Values(size), residual = this->Values(size);
    const auto weight = this->Values(dim), bias = this->Values(dim);
    for (const bool centred : {false, true}) {
      this->ExpectSameBits([&](int32_t shift) {
        const NormArgs<T> args = {.x = this->PutShifted(x, shift),
                                  .residual = this->PutShifted(residual, shift),
                                  .sum = this->template RoomShifted<T>(size, shift),
                                  .weight = this->PutShifted(weight, shift),
                                  .bias = centred ? this->PutShifted(bias, shift) : nullptr,
                                  .eps = 1e-5f,
                                  .dim = dim,
                                  .rows = this->Live(rows),
                                  .out = this->template RoomShifted<T>(size, shift)};
        centred ? LayerNorm(this->lab_.stream(), args) : RmsNorm(this->lab_.stream(), args);
        auto out = this->lab_.Get(args.out, size);
        const auto sum = this->lab_.Get(args.sum, size);
        out.insert(out.end(), sum.begin(), sum.end());
        return out;
      });
    }
  }
}

TYPED_TEST(RowAccessTest, ActivationsAndMixes) {
  using T = TypeParam;
  for (int trial = 0; trial < 4; ++trial) {
    const int32_t dim = this->AnyWidth(), rows = RandomInt(this->random_, 1, 20), size = rows * dim;
    SCOPED_TRACE(testing::Message() << rows << " x " << dim);
    const auto a = this->Values(size), b = this->Values(size), weight = this->Values(dim);
    this->ExpectSameBits([&](int32_t shift) {
      const ActivationArgs<T> args = {.activation = Activation::kGelu,
                                      .in = this->PutShifted(a, shift),
                                      .up = this->PutShifted(b, shift),
                                      .dim = dim,
                                      .rows = this->Live(rows),
                                      .out = this->template RoomShifted<T>(size, shift)};
      Activate(this->lab_.stream(), args);
      return this->lab_.Get(args.out, size);
    });
    for (const int32_t repeat : {1, 8}) {
      this->ExpectSameBits([&](int32_t shift) {
        const MixArgs<T> args = {.a = this->PutShifted(a, shift),
                                 .a_weight = this->PutShifted(weight, shift),
                                 .b = this->PutShifted(b, shift),
                                 .b_weight = this->PutShifted(weight, shift),
                                 .repeat = repeat,
                                 .dim = dim,
                                 .rows = this->Live(rows),
                                 .out = this->template RoomShifted<T>(size, shift)};
        Mix(this->lab_.stream(), args);
        return this->lab_.Get(args.out, size);
      });
    }
  }
}

TYPED_TEST(RowAccessTest, EmbeddingsAndInputs) {
  using T = TypeParam;
  const int32_t dim = this->AnyWidth(), rows = RandomInt(this->random_, 1, 20), size = rows * dim;
  SCOPED_TRACE(testing::Message() << rows << " x " << dim);
  const auto table = this->Values(5 * dim), before = this->Values(size);
  std::vector<int32_t> ids(rows);
  for (int32_t& id : ids) id = RandomInt(this->random_, 0, 4);
  this->ExpectSameBits([&](int32_t shift) {
    const EmbedArgs<T> args = {.table = this->PutShifted(table, shift),
                               .ids = this->lab_.Put(ids),
                               .dim = dim,
                               .accumulate = true,
                               .scale = 1.7f,
                               .rows = this->Live(rows),
                               .out = this->PutShifted(before, shift)};
    Embed(this->lab_.stream(), args);
    return this->lab_.Get(args.out, size);
  });
  const auto in = RandomValues<float>(this->random_, size);
  this->ExpectSameBits([&](int32_t shift) {
    T* out = this->template RoomShifted<T>(size, shift);
    TakeInput<T>(this->lab_.stream(), {this->PutShifted(in, shift), dim, this->Live(rows), out});
    return this->lab_.Get(out, size);
  });
}

TYPED_TEST(RowAccessTest, Rope) {
  using T = TypeParam;
  const int32_t rows = 5, q_heads = 4, kv_heads = 2, dim = 64, slots = kPageTokens;
  const auto q = this->Values(rows * q_heads * dim), k = this->Values(rows * kv_heads * dim);
  const auto v = this->Values(rows * kv_heads * dim), blank = this->Values(slots * kv_heads * dim);
  for (const int32_t rotary_dim : {64, 32, 0}) {
    SCOPED_TRACE(rotary_dim);
    const auto cos = RandomValues<float>(this->random_, 8 * 32);
    const auto sin = RandomValues<float>(this->random_, 8 * 32);
    this->ExpectSameBits([&](int32_t shift) {
      const RopeArgs<T> args = {
          .cos = this->PutShifted(cos, shift),
          .sin = this->PutShifted(sin, shift),
          .rotary_dim = rotary_dim,
          .positions = this->lab_.template Put<int32_t>({7, 0, 3, 3, 5}),
          .kv_slots = this->lab_.template Put<int32_t>({2, 9, 0, 15, 7}),
          .q_heads = q_heads,
          .q = this->PutShifted(q, shift),
          .k = this->PutShifted(k, shift),
          .v = this->PutShifted(v, shift),
          .kv = {this->PutShifted(blank, shift), this->PutShifted(blank, shift), kv_heads, dim},
          .rows = this->Live(rows)};
      RopeAndStore(this->lab_.stream(), args);
      auto out = this->lab_.Get(args.q, q.size());
      for (const T* cache : {args.kv.k, args.kv.v}) {
        const auto stored = this->lab_.Get(cache, blank.size());
        out.insert(out.end(), stored.begin(), stored.end());
      }
      return out;
    });
  }
}

TYPED_TEST(RowAccessTest, ExcludeSelf) {
  using T = TypeParam;
  for (const int32_t dim : {8, 64, 128, 256}) {
    SCOPED_TRACE(dim);
    const int32_t rows = 6, q_heads = 4, kv_heads = 2;
    const auto y = this->Values(rows * q_heads * dim), v = this->Values(rows * kv_heads * dim);
    this->ExpectSameBits([&](int32_t shift) {
      const ExcludeSelfArgs<T> args = {
          .y = this->PutShifted(y, shift),
          .v = this->PutShifted(v, shift),
          .q_heads = q_heads,
          .kv_heads = kv_heads,
          .head_dim = dim,
          .xsa = {.form = XsaForm::kNorm},
          .rows = this->Live(rows),
          .out = this->template RoomShifted<T>(rows * q_heads * dim, shift)};
      cuda::ExcludeSelf(this->lab_.stream(), args);
      return this->lab_.Get(args.out, y.size());
    });
  }
}

using FinishLogitsAccessTest = RowAccessTest<float>;

TEST_F(FinishLogitsAccessTest, FinishLogits) {
  const int32_t rows = 3, n = 8200;
  const auto logits = RandomValues<float>(random_, rows * n, 5.0f);
  ExpectSameBits([&](int32_t shift) {
    float* out = PutShifted(logits, shift);
    FinishLogits(lab_.stream(), {.logits = out,
                                 .n = n,
                                 .soft_cap = 2,
                                 .excluded = lab_.Put<int32_t>({0, 8199, 4100, 7}),
                                 .begin = lab_.Put<int32_t>({0, 3, 3, 4}),
                                 .rows = Live(rows)});
    return lab_.Get(out, rows * n);
  });
}

}  // namespace
}  // namespace sluice::kernels::cuda
