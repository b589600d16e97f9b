// Ops that treat each row separately.
#include "kernels/cuda/activation.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/exchange.h"
#include "kernels/cuda/mix.h"
#include "kernels/cuda/norm.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/norm.h"
#include "tests/kernels/common/row_op_bodies.h"
#include "tests/kernels/cuda/op_test.h"
#include "tests/kernels/cuda/product_fixture.h"

namespace sluice::kernels::cuda {
namespace {

constexpr RowsShape kRowShapes[] = {{1, 1},   {3, 77},   {5, 33},   {20, 128}, {2, 256},
                                    {3, 700}, {2, 1000}, {1, 8200}, {1, 8201}};

// The functions that the shared bodies call.
template <typename T>
class RowOpsTest : public OpTest {
 public:
  using Element = T;
  using OpTest::lab_;

  void RmsNorm(const T* x, const T* weight, float eps, const RowsShape& shape, T* out) {
    cuda::RmsNorm<T>(lab_.stream(), {.x = x,
                                     .weight = weight,
                                     .eps = eps,
                                     .dim = shape.dim,
                                     .rows = Live(shape.rows),
                                     .out = out});
  }
  void LayerNorm(const T* x, const T* weight, const T* bias, float eps, const RowsShape& shape,
                 T* out) {
    cuda::LayerNorm<T>(lab_.stream(), {.x = x,
                                       .weight = weight,
                                       .bias = bias,
                                       .eps = eps,
                                       .dim = shape.dim,
                                       .rows = Live(shape.rows),
                                       .out = out});
  }
  void Activate(Activation activation, const T* in, const T* up, const RowsShape& shape, T* out) {
    cuda::Activate<T>(lab_.stream(), {activation, in, up, shape.dim, 0, Live(shape.rows), out});
  }
  void Mix(const T* a, const T* a_weight, const T* b, const T* b_weight, int32_t repeat,
           const RowsShape& shape, T* out) {
    cuda::Mix<T>(lab_.stream(),
                 {a, a_weight, b, b_weight, repeat, shape.dim, 0, Live(shape.rows), out});
  }
  void Embed(const T* table, const int32_t* ids, bool accumulate, float scale,
             const RowsShape& shape, T* out) {
    cuda::Embed<T>(lab_.stream(),
                   {table, ids, nullptr, shape.dim, accumulate, scale, Live(shape.rows), out});
  }
  void Exchange(const T* in, const std::vector<int32_t>& places, int32_t tokens, int32_t block,
                T* out) {
    cuda::Exchange<T>(lab_.stream(), {in, lab_.Put(places), tokens, block,
                                      Live(static_cast<int32_t>(places.size())), out});
  }
};
TYPED_TEST_SUITE(RowOpsTest, DTypes);

TYPED_TEST(RowOpsTest, EmbedCopiesTheRowsOfTheTable) {
  for (const auto& [rows, dim] : {std::pair(0, 5), {1, 1}, {7, 33}, {40, 200}, {2, 2100}}) {
    const auto table = RandomValues<TypeParam>(this->random_, 11 * dim);
    std::vector<int32_t> ids(rows);
    for (int32_t& id : ids) id = RandomInt(this->random_, 0, 10);
    TypeParam* out = this->lab_.template Room<TypeParam>(rows * dim);
    cuda::Embed<TypeParam>(this->lab_.stream(), {.table = this->lab_.Put(table),
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

TYPED_TEST(RowOpsTest, RmsNormEqualsTheReference) {
  ExpectRmsNormEqualsReference(*this, this->random_, kRowShapes);
}

TYPED_TEST(RowOpsTest, LayerNormEqualsTheReference) {
  ExpectLayerNormEqualsReference(*this, this->random_, kRowShapes);
}

TYPED_TEST(RowOpsTest, NormsAddTheResidualAndKeepTheSum) {
  using T = TypeParam;
  for (const int32_t dim : {150, 160, 1000, 8208}) {
    SCOPED_TRACE(testing::Message() << "dim " << dim << ", seed " << this->kSeed);
    const int32_t rows = 6;
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
      cuda::RmsNorm(this->lab_.stream(), args);
      EXPECT_TRUE(SameBits(this->lab_.Get(args.sum, rows * dim), sum));
      EXPECT_TRUE(Matches(Op::kRowWise, this->lab_.Get(args.out, rows * dim),
                          reference::RmsNorm(ToDouble(sum), {}, 1e-6, dim)));
    }
  }
}

TYPED_TEST(RowOpsTest, EmbedTakesTokensThatWereDrawn) {
  using T = TypeParam;
  for (const int32_t dim : {130, 128}) {
    const auto table = RandomValues<T>(this->random_, 5 * dim);
    const auto before = RandomValues<T>(this->random_, 4 * dim);
    const std::vector<SampleOutcome> drawn = {
        {.token = 4, .logprob = 0}, {.token = -1, .logprob = NAN}, {.token = 2, .logprob = 0}};
    const std::vector<int32_t> ids = {-2, 3, -4, -3};
    T* const out = this->lab_.Put(before);
    cuda::Embed<T>(this->lab_.stream(), {.table = this->lab_.Put(table),
                                         .ids = this->lab_.Put(ids),
                                         .drawn = this->lab_.Put(drawn),
                                         .dim = dim,
                                         .rows = this->Live(4),
                                         .out = out});
    std::vector<T> expected;
    for (const int32_t entry : {4, 3, 2}) {
      expected.insert(expected.end(), table.begin() + entry * dim,
                      table.begin() + (entry + 1) * dim);
    }
    expected.insert(expected.end(), before.end() - dim, before.end());
    EXPECT_TRUE(SameBits(this->lab_.Get(out, 4 * dim), expected))
        << "dim " << dim << ", seed " << this->kSeed;
  }
}

// A row of table 1, of a missing table, and of table 0, which is narrower. Row 2 is in no tile.
TYPED_TEST(RowOpsTest, EmbedReadsTheTableOfTheRowsTile) {
  using T = TypeParam;
  constexpr int32_t kStride = 72;
  const auto narrow = RandomValues<T>(this->random_, 5 * 8),
             wide = RandomValues<T>(this->random_, 5 * 72);
  const std::vector<SampleOutcome> drawn = {{.token = 4, .logprob = 0},
                                            {.token = -1, .logprob = NAN}};
  const std::vector<int32_t> ids = {-2, 3, 1, 2, -1, -3};
  const std::vector<RowGroup> groups = {{1, 0, 1}, {2, 1, 1}, {0, 3, 3}};
  const auto before = RandomValues<T>(this->random_, 6 * kStride);
  const auto table_of = [&](const PlacedMatrix& matrix) -> const PlacedMatrix* {
    return this->lab_.template Put<PlacedMatrix>({PlacedMatrix{}, matrix});
  };
  const std::vector<const PlacedMatrix*> tables = {table_of({this->lab_.Put(narrow), 5, 8}),
                                                   table_of({this->lab_.Put(wide), 5, 72}),
                                                   table_of({})};
  T* const out = this->lab_.Put(before);
  EmbedPlaced<T>(this->lab_.stream(), {.ids = this->lab_.Put(ids),
                                       .drawn = this->lab_.Put(drawn),
                                       .tiles = TilesOn(this->lab_, groups, 6),
                                       .tables = {this->lab_.Put(tables), 1},
                                       .stride = kStride,
                                       .out = out});
  std::vector<T> expected = before;
  std::copy_n(wide.begin() + 4 * 72, 72, expected.begin());
  std::copy_n(narrow.begin() + 2 * 8, 8, expected.begin() + 3 * kStride);
  for (const int32_t row : {4, 5})
    std::fill_n(expected.begin() + row * kStride, 8, Narrow<T>(0.0f));
  EXPECT_TRUE(SameBits(this->lab_.Get(out, 6 * kStride), expected)) << "seed " << this->kSeed;
}

TYPED_TEST(RowOpsTest, EmbedScalesAccumulatesAndSkipsNegativeIds) {
  ExpectEmbedScalesAccumulatesAndSkips(*this, this->random_, 130);
  ExpectEmbedScalesAccumulatesAndSkips(*this, this->random_, 128);
}

TYPED_TEST(RowOpsTest, InputsAreRounded) {
  using T = TypeParam;
  for (const auto& [rows, dim] : {std::pair(0, 3), {5, 33}, {5, 40}}) {
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
  cuda::RmsNorm(this->lab_.stream(), args);
  auto expected = reference::RmsNorm(ToDouble(x), {}, 1e-5, dim);
  for (double& value : expected) value *= 0.5;
  EXPECT_TRUE(Matches(Op::kRowWise, this->lab_.Get(args.out, rows * groups * dim), expected));
}

TYPED_TEST(RowOpsTest, ActivationsEqualTheReference) {
  ExpectActivationsEqualReference(*this, this->random_, kRowShapes);
}

TYPED_TEST(RowOpsTest, ExchangeMovesBlocksBetweenTheRowsOfASequence) {
  ExpectExchangeMovesBlocks(*this, this->random_);
}

TYPED_TEST(RowOpsTest, MixEqualsTheReference) {
  constexpr RowsShape kMixed[] = {{5, 84}, {1, 12}};
  ExpectMixEqualsReference(*this, this->random_, kMixed, {1, 12});
  constexpr RowsShape kAligned[] = {{9, 96}};
  ExpectMixEqualsReference(*this, this->random_, kAligned, {1, 4, 16});
}

// A row's bits do not depend on the other rows or on its place.
TYPED_TEST(RowOpsTest, ARowsNormDoesNotDependOnTheOthers) {
  using T = TypeParam;
  for (const int32_t dim : {24, 128, 250, 600, 4096, 8216}) {
    const int32_t rows = RandomInt(this->random_, 30, 40);
    SCOPED_TRACE(testing::Message() << rows << " x " << dim << ", seed " << this->kSeed);
    const auto x = RandomValues<T>(this->random_, rows * dim);
    const auto weight = RandomValues<T>(this->random_, dim);
    const auto norm = [&](const std::vector<T>& in) {
      T* out = this->lab_.template Room<T>(in.size());
      const auto count = static_cast<int32_t>(in.size()) / dim;
      this->LayerNorm(this->lab_.Put(in), this->lab_.Put(weight), nullptr, 1e-5f, {count, dim},
                      out);
      return this->lab_.Get(out, in.size());
    };
    const std::vector<T> together = norm(x);
    for (const int32_t r : {0, 7, rows - 1}) {
      const auto row = [&](const std::vector<T>& of) {
        return std::vector<T>(&of[r * dim], &of[r * dim] + dim);
      };
      EXPECT_TRUE(SameBits(norm(row(x)), row(together))) << "row " << r;
    }
    this->lab_.Clear();
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
  cuda::RmsNorm(this->lab_.stream(), args);
  auto graph = this->lab_.stream().EndCapture().value();
  this->lab_.template Write<int32_t>(count, std::vector<int32_t>{5});
  this->lab_.stream().Run(*graph);
  EXPECT_TRUE(Matches(Op::kRowWise, this->lab_.Get(args.out, 5 * dim),
                      reference::RmsNorm(ToDouble(x), {}, 1e-5, dim)));
}

}  // namespace
}  // namespace sluice::kernels::cuda
