// Ops that treat each row separately.
#include "kernels/cuda/activation.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/mix.h"
#include "kernels/cuda/norm.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/norm.h"
#include "tests/kernels/cuda/op_test.h"

namespace sluice::kernels::cuda {
namespace {

template <typename T>
class RowOpsTest : public OpTest {};
TYPED_TEST_SUITE(RowOpsTest, DTypes);

TYPED_TEST(RowOpsTest, EmbedCopiesTheRowsOfTheTable) {
  for (const auto& [rows, dim] : {std::pair(0, 5), {1, 1}, {7, 33}, {40, 200}}) {
    const auto table = RandomValues<TypeParam>(this->random_, 11 * dim);
    std::vector<int32_t> ids(rows);
    for (int32_t& id : ids) id = RandomInt(this->random_, 0, 10);
    TypeParam* out = this->lab_.template Room<TypeParam>(rows * dim);
    Embed<TypeParam>(this->lab_.stream(), {.table = this->lab_.Put(table),
                                           .ids = this->lab_.Put(ids),
                                           .dim = dim,
                                           .rows = this->Live(rows),
                                           .out = out});
    const auto got = this->lab_.Get(out, rows * dim);
    for (int i = 0; i < rows * dim; ++i) {
      EXPECT_EQ(Widen(got[i]), Widen(table[ids[i / dim] * dim + i % dim]));
    }
  }
}

TYPED_TEST(RowOpsTest, NormsEqualTheReference) {
  using T = TypeParam;
  for (const auto& [rows, dim] : {std::pair(1, 1), {5, 33}, {20, 128}, {3, 700}}) {
    SCOPED_TRACE(testing::Message() << rows << " rows of " << dim);
    const auto x = RandomValues<T>(this->random_, rows * dim, 2.0f);
    const auto weight = RandomValues<T>(this->random_, dim);
    const auto bias = RandomValues<T>(this->random_, dim);
    const NormArgs<T> args = {.x = this->lab_.Put(x),
                              .weight = this->lab_.Put(weight),
                              .eps = 1e-5f,
                              .dim = dim,
                              .rows = this->Live(rows),
                              .out = this->lab_.template Room<T>(rows * dim)};
    RmsNorm(this->lab_.stream(), args);
    EXPECT_TRUE(Matches(Op::kRowWise, this->lab_.Get(args.out, rows * dim),
                        reference::RmsNorm(ToDouble(x), ToDouble(weight), 1e-5, dim)));
    NormArgs<T> centred = args;
    centred.bias = this->lab_.Put(bias);
    LayerNorm(this->lab_.stream(), centred);
    EXPECT_TRUE(
        Matches(Op::kRowWise, this->lab_.Get(args.out, rows * dim),
                reference::LayerNorm(ToDouble(x), ToDouble(weight), ToDouble(bias), 1e-5, dim)));
  }
}

TYPED_TEST(RowOpsTest, NormsAddTheResidualAndKeepTheSum) {
  using T = TypeParam;
  const int32_t rows = 6, dim = 150;
  const auto x = RandomValues<T>(this->random_, rows * dim);
  const auto residual = RandomValues<T>(this->random_, rows * dim);
  std::vector<T> sum(rows * dim);
  for (size_t i = 0; i < sum.size(); ++i) {
    sum[i] = Narrow<T>(Widen(x[i]) + Widen(residual[i]));
  }
  for (bool in_place : {false, true}) {
    T* stream = this->lab_.Put(residual);
    const NormArgs<T> args = {.x = this->lab_.Put(x),
                              .residual = stream,
                              .sum = in_place ? stream : this->lab_.template Room<T>(rows * dim),
                              .eps = 1e-6f,
                              .dim = dim,
                              .rows = this->Live(rows),
                              .out = this->lab_.template Room<T>(rows * dim)};
    RmsNorm(this->lab_.stream(), args);
    EXPECT_TRUE(SameBits(this->lab_.Get(args.sum, rows * dim), sum));
    EXPECT_TRUE(Matches(Op::kRowWise, this->lab_.Get(args.out, rows * dim),
                        reference::RmsNorm(ToDouble(sum), {}, 1e-6, dim)));
  }
}

TYPED_TEST(RowOpsTest, EmbedScalesAccumulatesAndSkipsNegativeIds) {
  using T = TypeParam;
  const int32_t dim = 130;
  const auto table = RandomValues<T>(this->random_, 5 * dim);
  const auto before = RandomValues<T>(this->random_, 4 * dim);
  const std::vector<int32_t> ids = {4, -1, 0, 2};
  const T* on_device = this->lab_.Put(table);
  const int32_t* all_ids = this->lab_.Put(ids);
  for (const bool accumulate : {false, true}) {
    for (const int32_t* indices : {all_ids, static_cast<const int32_t*>(nullptr)}) {
      T* out = this->lab_.Put(before);
      Embed<T>(this->lab_.stream(), {.table = on_device,
                                     .ids = indices,
                                     .dim = dim,
                                     .accumulate = accumulate,
                                     .scale = 2.5f,
                                     .rows = this->Live(4),
                                     .out = out});
      std::vector<double> expected;
      for (int32_t i = 0; i < 4 * dim; ++i) {
        const int32_t id = indices == nullptr ? 0 : ids[i / dim];
        const double base = accumulate || id < 0 ? Widen(before[i]) : 0.0;
        expected.push_back(base + (id < 0 ? 0.0 : 2.5 * Widen(table[id * dim + i % dim])));
      }
      EXPECT_TRUE(Matches(Op::kRowWise, this->lab_.Get(out, 4 * dim), expected));
    }
  }
}

TYPED_TEST(RowOpsTest, InputsAreRounded) {
  using T = TypeParam;
  for (const auto& [rows, dim] : {std::pair(0, 3), {5, 33}}) {
    const auto in = RandomValues<float>(this->random_, rows * dim);
    T* out = this->lab_.template Room<T>(rows * dim);
    TakeInput<T>(this->lab_.stream(), {this->lab_.Put(in), dim, this->Live(rows), out});
    const auto got = this->lab_.Get(out, rows * dim);
    for (int i = 0; i < rows * dim; ++i) EXPECT_EQ(Widen(got[i]), Widen(Narrow<T>(in[i])));
  }
}

// Each head of a row is normalised separately, with a scale.
TYPED_TEST(RowOpsTest, NormsTreatEachGroupOfARowSeparately) {
  using T = TypeParam;
  const int32_t rows = 7, groups = 3, dim = 24;
  const auto x = RandomValues<T>(this->random_, rows * groups * dim);
  const NormArgs<T> args = {.x = this->lab_.Put(x),
                            .eps = 1e-5f,
                            .scale = 0.5f,
                            .dim = dim,
                            .groups = groups,
                            .rows = this->Live(rows),
                            .out = this->lab_.template Room<T>(rows * groups * dim)};
  RmsNorm(this->lab_.stream(), args);
  auto expected = reference::RmsNorm(ToDouble(x), {}, 1e-5, dim);
  for (double& value : expected) value *= 0.5;
  EXPECT_TRUE(Matches(Op::kRowWise, this->lab_.Get(args.out, rows * groups * dim), expected));
}

TYPED_TEST(RowOpsTest, ActivationsEqualTheReferenceInPlaceToo) {
  using T = TypeParam;
  for (int kind = 0; kind < kActivations; ++kind) {
    const auto activation = static_cast<Activation>(kind);
    for (const auto& [rows, dim] : {std::pair(1, 1), {3, 77}, {9, 300}}) {
      SCOPED_TRACE(testing::Message() << "activation " << kind << ", " << rows << " x " << dim);
      const auto in = RandomValues<T>(this->random_, rows * dim, 8.0f);
      const auto up = RandomValues<T>(this->random_, rows * dim);
      for (const bool gated : {true, false}) {
        std::vector<double> expected;
        for (size_t i = 0; i < in.size(); ++i) {
          expected.push_back(reference::Activate(activation, Widen(in[i])) *
                             (gated ? Widen(up[i]) : 1));
        }
        T* inout = this->lab_.Put(in);
        Activate<T>(this->lab_.stream(), {.activation = activation,
                                          .in = inout,
                                          .up = gated ? this->lab_.Put(up) : nullptr,
                                          .dim = dim,
                                          .rows = this->Live(rows),
                                          .out = inout});
        EXPECT_TRUE(Matches(Op::kRowWise, this->lab_.Get(inout, rows * dim), expected));
      }
    }
  }
}

TYPED_TEST(RowOpsTest, MixEqualsTheReferenceInPlaceToo) {
  using T = TypeParam;
  const int32_t rows = 5, dim = 84;
  const auto a = RandomValues<T>(this->random_, rows * dim);
  const auto b = RandomValues<T>(this->random_, rows * dim);
  for (const int32_t repeat : {1, 12}) {
    const auto a_weight = RandomValues<T>(this->random_, dim / repeat);
    const auto b_weight = RandomValues<T>(this->random_, dim / repeat);
    for (int kind = 0; kind < 8; ++kind) {
      const bool weigh_a = (kind & 1) != 0, with_b = (kind & 2) != 0, weigh_b = (kind & 4) != 0;
      std::vector<double> expected;
      for (int32_t i = 0; i < rows * dim; ++i) {
        const int32_t d = i % dim / repeat;
        double sum = Widen(a[i]) * (weigh_a ? Widen(a_weight[d]) : 1.0);
        if (with_b) sum += Widen(b[i]) * (weigh_b ? Widen(b_weight[d]) : 1.0);
        expected.push_back(sum);
      }
      T* inout = this->lab_.Put(a);
      Mix<T>(this->lab_.stream(), {.a = inout,
                                   .a_weight = weigh_a ? this->lab_.Put(a_weight) : nullptr,
                                   .b = with_b ? this->lab_.Put(b) : nullptr,
                                   .b_weight = weigh_b ? this->lab_.Put(b_weight) : nullptr,
                                   .repeat = repeat,
                                   .dim = dim,
                                   .rows = this->Live(rows),
                                   .out = inout});
      EXPECT_TRUE(Matches(Op::kRowWise, this->lab_.Get(inout, rows * dim), expected)) << kind;
    }
  }
}

// The step grows within its bucket: a graph captured for 2 rows serves 5.
TYPED_TEST(RowOpsTest, ACapturedNormFollowsTheRowsOfTheStep) {
  using T = TypeParam;
  const int32_t dim = 20;
  const auto x = RandomValues<T>(this->random_, 5 * dim);
  int32_t* count = this->lab_.template Put<int32_t>({2});
  const NormArgs<T> args = {.x = this->lab_.Put(x),
                            .eps = 1e-5f,
                            .dim = dim,
                            .rows = {count, 5},
                            .out = this->lab_.template Room<T>(5 * dim)};
  this->lab_.stream().BeginCapture();
  RmsNorm(this->lab_.stream(), args);
  auto graph = this->lab_.stream().EndCapture().value();
  this->lab_.template Write<int32_t>(count, std::vector<int32_t>{5});
  this->lab_.stream().Run(*graph);
  EXPECT_TRUE(Matches(Op::kRowWise, this->lab_.Get(args.out, 5 * dim),
                      reference::RmsNorm(ToDouble(x), {}, 1e-5, dim)));
}

}  // namespace
}  // namespace sluice::kernels::cuda
