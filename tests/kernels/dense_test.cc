#include "kernels/cpu/dense.h"

#include "kernels/cpu/onednn_dense.h"
#include "kernels/reference/linear.h"
#include "tests/kernels/op_test.h"
#include "tests/support/invariance.h"

namespace sluice::kernels {
namespace {

struct Case {
  int64_t k, n, rows;
  bool transposed, bias, accumulate;
};
constexpr Case kCases[] = {{1, 1, 1, true, false, false},      {37, 53, 7, true, true, false},
                           {64, 256, 64, true, false, true},   {100, 257, 65, false, true, true},
                           {300, 600, 130, true, true, false}, {512, 90, 200, false, false, false}};

void ExpectReference(const Context& context, const Dense& dense, const Case& c,
                     const float* weights, Op op, std::mt19937_64& random) {
  const std::vector<float> x = RandomFloats(random, c.rows * c.k), bias = RandomFloats(random, c.n);
  const std::vector<float> before = RandomFloats(random, c.rows * c.n);
  std::vector<double> matrix(static_cast<size_t>(c.k * c.n));  // [out, in]
  for (int64_t i = 0; i < c.k; ++i) {
    for (int64_t o = 0; o < c.n; ++o) {
      matrix[o * c.k + i] = weights[c.transposed ? o * c.k + i : i * c.n + o];
    }
  }
  std::vector<double> expected =
      reference::Linear(Widen(x), matrix, c.bias ? Widen(bias) : std::vector<double>{}, c.k, c.n);
  for (size_t i = 0; c.accumulate && i < expected.size(); ++i) expected[i] += before[i];

  for (int64_t gap : {0, 5}) {  // without and with NaN between the rows
    const int64_t ldx = c.k + gap, ldo = c.n + gap;
    std::vector<float> in(c.rows * ldx, kPoison), out(c.rows * ldo, kPoison), dense_out;
    for (int64_t r = 0; r < c.rows; ++r) {
      std::copy_n(&x[r * c.k], c.k, &in[r * ldx]);
      if (c.accumulate) std::copy_n(&before[r * c.n], c.n, &out[r * ldo]);
    }
    dense.Run(context, c.rows,
              {in.data(), ldx, c.bias ? bias.data() : nullptr, 0, out.data(), ldo, c.accumulate});
    for (int64_t r = 0; r < c.rows; ++r) {
      dense_out.insert(dense_out.end(), &out[r * ldo], &out[r * ldo] + c.n);
      EXPECT_TRUE(gap == 0 || std::isnan(out[r * ldo + c.n]));
    }
    EXPECT_TRUE(Matches(op, dense_out, expected)) << "gap " << gap;
  }
}

class DenseTest : public OpTest {};

TEST_P(DenseTest, EqualsTheReference) {
  std::mt19937_64 random(21);
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.k << " x " << c.n);
    const std::vector<float> weights = RandomFloats(random, c.k * c.n);
    const auto dense =
        Dense::Create(Two(), {weights.data(), DType::kF32, 1, c.k, c.n, c.transposed});
    EXPECT_EQ(dense->k(), c.k);
    EXPECT_EQ(dense->n(), c.n);
    EXPECT_GE(dense->bytes(), c.k * c.n * static_cast<int64_t>(sizeof(float)));
    ExpectReference(Two(), *dense, c, weights.data(), Op::kGemm, random);
  }
}

TEST_P(DenseTest, RowsDoNotDependOnTheirBatchOrOnThreads) {
  std::mt19937_64 random(22);
  constexpr int64_t kK = 130, kN = 300;
  const std::vector<float> weights = RandomFloats(random, kK * kN);
  const WeightSource source = {weights.data(), DType::kF32, 1, kK, kN, true};
  const auto one = Dense::Create(One(), source), two = Dense::Create(Two(), source);
  const std::vector<float> x = RandomFloats(random, 70 * kK);
  bool parallel = false;
  EXPECT_TRUE(RowsAreInvariant([&](std::span<const int32_t> rows) {
    std::vector<float> in, out(rows.size() * kN);
    for (int32_t row : rows) in.insert(in.end(), &x[row * kK], &x[row * kK] + kK);
    const GemmArgs args = {in.data(), kK, nullptr, 0, out.data(), kN, false};
    parallel = !parallel;
    (parallel ? *two : *one).Run(parallel ? Two() : One(), static_cast<int64_t>(rows.size()), args);
    return out;
  })) << one->implementation();
}

SLUICE_EVERY_PROFILE(DenseTest);

// oneDNN's rows vary with the batch on AVX2, but they are right to within rounding.
TEST(OneDnnDenseTest, EqualsTheReferenceAndCreatesPrimitivesOnlyAtConstruction) {
  ThreadPool pool(2);
  const Context context = {BestProfile(), &pool};
  std::mt19937_64 random(23);
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.k << " x " << c.n);
    const std::vector<float> weights = RandomFloats(random, c.k * c.n);
    const int64_t before = PrimitivesCreated();
    const auto dense =
        CreateOneDnnDense(context, {weights.data(), DType::kF32, 1, c.k, c.n, c.transposed});
    ASSERT_NE(dense, nullptr);
    EXPECT_STREQ(dense->implementation(), "onednn");
    const int64_t created = PrimitivesCreated();
    EXPECT_GT(created, before);
    ExpectReference(context, *dense, c, weights.data(), Op::kOneDnn, random);
    EXPECT_EQ(PrimitivesCreated(), created);
  }
}

// Adds the number of rows to the last bit of every result.
class DependentDense final : public Dense {
 public:
  void Run(const Context& context, int64_t rows, const GemmArgs& args) const override {
    const float nudge = rows >= 16 ? 0x1p-23f : 0.0f;
    for (int64_t r = 0; r < rows; ++r) args.out[r * args.ldo] = 1.0f + nudge;
  }
  int64_t k() const override { return 4; }
  int64_t n() const override { return 1; }
  int64_t bytes() const override { return 0; }
  const char* implementation() const override { return "dependent"; }
};

TEST(RowsIndependentTest, TellsADependentImplementationFromAnIndependentOne) {
  ThreadPool pool(1);
  const Context context = {Profile::kPortableF32, &pool};
  EXPECT_FALSE(RowsIndependent(context, DependentDense()));
  const std::vector<float> weights(40 * 30, 0.3f);
  const auto dense = Dense::Create(context, {weights.data(), DType::kF32, 1, 40, 30, true});
  EXPECT_STREQ(dense->implementation(), "gemm");
  EXPECT_TRUE(RowsIndependent(context, *dense));
}

}  // namespace
}  // namespace sluice::kernels
