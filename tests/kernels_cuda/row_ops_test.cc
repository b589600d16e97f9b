// Ops that treat each row alone.
#include "kernels/cuda/activation.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/norm.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/norm.h"
#include "tests/kernels_cuda/op_test.h"

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
    Embed<TypeParam>(this->lab_.stream(),
                     {this->lab_.Put(table), this->lab_.Put(ids), dim, this->Live(rows), out});
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

TYPED_TEST(RowOpsTest, SwiGluEqualsTheReferenceInPlaceToo) {
  using T = TypeParam;
  for (const auto& [rows, dim] : {std::pair(1, 1), {3, 77}, {9, 300}}) {
    auto gate = RandomValues<T>(this->random_, rows * dim, 20.0f);
    const auto up = RandomValues<T>(this->random_, rows * dim);
    const auto expected = reference::SwiGlu(ToDouble(gate), ToDouble(up));
    T* inout = this->lab_.Put(gate);
    SwiGlu<T>(this->lab_.stream(), {inout, this->lab_.Put(up), dim, this->Live(rows), inout});
    EXPECT_TRUE(Matches(Op::kRowWise, this->lab_.Get(inout, rows * dim), expected));
  }
}

// A step that grows within its bucket: what was captured for 2 rows serves 5.
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
