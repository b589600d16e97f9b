// Operands whose rows allow accesses of 16 bytes, and the same operands at other addresses: every
// op must give the same bits.
#include "kernels/cuda/activation.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/logits.h"
#include "kernels/cuda/mix.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/rope.h"
#include "kernels/cuda/route.h"
#include "kernels/cuda/xsa.h"
#include "tests/kernels/cuda/op_test.h"

namespace sluice::kernels::cuda {
namespace {

template <typename T>
class RowAccessTest : public OpTest {
 protected:
  // Calls run(), which returns an op's output: with all operands at aligned addresses, with only
  // one of them at another address, for each operand, and with all at other addresses.
  template <typename Run>
  void ExpectSameBits(const Run& run) {
    shifted_ = kNone;
    operands_ = 0;
    const auto aligned = run();
    for (shifted_ = operands_ - 1; shifted_ >= kAll; --shifted_) {
      operands_ = 0;
      EXPECT_TRUE(SameBits(run(), aligned)) << "operand " << shifted_ << ", seed " << kSeed;
    }
    lab_.Clear();
  }
  // Return the next operand of run(), and memory for n values of it, on the device.
  template <typename U>
  U* Put(std::vector<U> values) {
    const int32_t shift = NextShift();
    values.insert(values.begin(), shift, U{});
    return lab_.Put(values) + shift;
  }
  template <typename U>
  U* Room(int64_t n) {
    const int32_t shift = NextShift();
    return lab_.Room<U>(n + shift) + shift;
  }
  std::vector<T> Values(int64_t n) { return RandomValues<T>(random_, n); }
  // Returns a width whose rows allow wide accesses.
  int32_t AnyWidth() { return 8 * RandomInt(random_, 1, 90); }

 private:
  static constexpr int32_t kAll = -1, kNone = -2;

  // Returns the distance of the next operand from an aligned address, in elements.
  int32_t NextShift() {
    const int32_t operand = operands_++;
    return shifted_ == kAll || shifted_ == operand ? 1 : 0;
  }

  int32_t shifted_ = kNone, operands_ = 0;
};
TYPED_TEST_SUITE(RowAccessTest, DTypes);

TYPED_TEST(RowAccessTest, Norms) {
  using T = TypeParam;
  for (const int32_t dim : {8, 64, 248, 256, 264, 1000, 8192, 8200, this->AnyWidth()}) {
    SCOPED_TRACE(dim);
    const int32_t rows = RandomInt(this->random_, 1, dim < 1000 ? 20 : 3), size = rows * dim;
    const auto x = this->Values(size), residual = this->Values(size);
    const auto weight = this->Values(dim), bias = this->Values(dim);
    for (const bool centred : {false, true}) {
      this->ExpectSameBits([&] {
        const NormArgs<T> args = {.x = this->Put(x),
                                  .residual = this->Put(residual),
                                  .sum = this->template Room<T>(size),
                                  .weight = this->Put(weight),
                                  .bias = centred ? this->Put(bias) : nullptr,
                                  .eps = 1e-5f,
                                  .dim = dim,
                                  .rows = this->Live(rows),
                                  .out = this->template Room<T>(size)};
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
    this->ExpectSameBits([&] {
      const ActivationArgs<T> args = {.activation = Activation::kGelu,
                                      .in = this->Put(a),
                                      .up = this->Put(b),
                                      .dim = dim,
                                      .rows = this->Live(rows),
                                      .out = this->template Room<T>(size)};
      Activate(this->lab_.stream(), args);
      return this->lab_.Get(args.out, size);
    });
    for (const int32_t repeat : {1, 8}) {
      this->ExpectSameBits([&] {
        const MixArgs<T> args = {.a = this->Put(a),
                                 .a_weight = this->Put(weight),
                                 .b = this->Put(b),
                                 .b_weight = this->Put(weight),
                                 .repeat = repeat,
                                 .dim = dim,
                                 .rows = this->Live(rows),
                                 .out = this->template Room<T>(size)};
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
  this->ExpectSameBits([&] {
    const EmbedArgs<T> args = {.table = this->Put(table),
                               .ids = this->lab_.Put(ids),
                               .dim = dim,
                               .accumulate = true,
                               .scale = 1.7f,
                               .rows = this->Live(rows),
                               .out = this->Put(before)};
    Embed(this->lab_.stream(), args);
    return this->lab_.Get(args.out, size);
  });
  const auto in = RandomValues<float>(this->random_, size);
  this->ExpectSameBits([&] {
    T* out = this->template Room<T>(size);
    TakeInput<T>(this->lab_.stream(), {this->Put(in), dim, this->Live(rows), out});
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
    this->ExpectSameBits([&] {
      const RopeArgs<T> args = {.cos = this->Put(cos),
                                .sin = this->Put(sin),
                                .rotary_dim = rotary_dim,
                                .positions = this->lab_.template Put<int32_t>({7, 0, 3, 3, 5}),
                                .kv_slots = this->lab_.template Put<int32_t>({2, 9, 0, 15, 7}),
                                .q_heads = q_heads,
                                .q = this->Put(q),
                                .k = this->Put(k),
                                .v = this->Put(v),
                                .kv = {this->Put(blank), this->Put(blank), kv_heads, dim},
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

TYPED_TEST(RowAccessTest, CopiesAndSumsOfExperts) {
  using T = TypeParam;
  const int32_t dim = this->AnyWidth(), rows = 7, chosen = 3, copies = rows * chosen;
  SCOPED_TRACE(dim);
  const auto x = this->Values(rows * dim), results = this->Values(copies * dim);
  const auto bias = this->Values(dim), before = this->Values(rows * dim);
  const auto weights = RandomValues<float>(this->random_, copies);
  std::vector<int32_t> places(copies);
  std::iota(places.begin(), places.end(), 0);
  std::shuffle(places.begin(), places.end(), this->random_);
  const auto routes = [&] {
    Routes of = {.max_rows = rows, .experts = chosen, .chosen = chosen};
    of.weights = this->lab_.Put(weights);
    of.places = this->lab_.Put(places);
    return of;
  };
  this->ExpectSameBits([&] {
    const CopyToPlacesArgs<T> args = {.x = this->Put(x),
                                      .dim = dim,
                                      .rows = this->Live(rows),
                                      .routes = routes(),
                                      .out = this->template Room<T>(copies * dim)};
    CopyToPlaces(this->lab_.stream(), args);
    return this->lab_.Get(args.out, copies * dim);
  });
  this->ExpectSameBits([&] {
    const CombineArgs<T> args = {.x = this->Put(results),
                                 .bias = this->Put(bias),
                                 .dim = dim,
                                 .accumulate = true,
                                 .rows = this->Live(rows),
                                 .routes = routes(),
                                 .out = this->Put(before)};
    Combine(this->lab_.stream(), args);
    return this->lab_.Get(args.out, rows * dim);
  });
}

TYPED_TEST(RowAccessTest, ExcludeSelf) {
  using T = TypeParam;
  for (const int32_t dim : {8, 64, 128, 256}) {
    SCOPED_TRACE(dim);
    const int32_t rows = 6, q_heads = 4, kv_heads = 2;
    const auto y = this->Values(rows * q_heads * dim), v = this->Values(rows * kv_heads * dim);
    this->ExpectSameBits([&] {
      const ExcludeSelfArgs<T> args = {.y = this->Put(y),
                                       .v = this->Put(v),
                                       .q_heads = q_heads,
                                       .kv_heads = kv_heads,
                                       .head_dim = dim,
                                       .xsa = {.form = XsaForm::kNorm},
                                       .rows = this->Live(rows),
                                       .out = this->template Room<T>(rows * q_heads * dim)};
      cuda::ExcludeSelf(this->lab_.stream(), args);
      return this->lab_.Get(args.out, y.size());
    });
  }
}

using FinishLogitsAccessTest = RowAccessTest<float>;

TEST_F(FinishLogitsAccessTest, FinishLogits) {
  const int32_t rows = 3, n = 8200;
  const auto logits = RandomValues<float>(random_, rows * n, 5.0f);
  ExpectSameBits([&] {
    float* out = Put(logits);
    FinishLogits(lab_.stream(), {.logits = out,
                                 .n = n,
                                 .stride = n,
                                 .soft_cap = 2,
                                 .excluded = lab_.Put<int32_t>({0, 8199, 4100, 7}),
                                 .begin = lab_.Put<int32_t>({0, 3, 3, 4}),
                                 .rows = Live(rows)});
    return lab_.Get(out, rows * n);
  });
}

}  // namespace
}  // namespace sluice::kernels::cuda
