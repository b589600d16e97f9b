// Quantisation and products in int8 have the bits of the reference in integers, which the CPU's
// kernels also have. The bits do not depend on the assignment of work to blocks.
#include "kernels/cuda/int8.h"

#include <numeric>
#include <set>
#include <tuple>

#include "kernels/cuda/activation.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/projection.h"
#include "tests/kernels/common/int8_bodies.h"
#include "tests/kernels/cuda/op_test.h"
#include "tests/kernels/cuda/product_fixture.h"

namespace sluice::kernels::cuda {
namespace {

template <typename T>
class Int8Test : public OpTest {
 protected:
  using Args = ProjectionArgs<T, T, int8_t>;

  struct Weight {
    const int8_t* columns;  // [matrices, n, Int8Stride(k)]
    const float* scales;
  };
  // Returns the matrices [matrices, n, k] on the device, quantised unless they have scales.
  Weight QuantizeWeight(const std::vector<float>& columns, const std::vector<float>& stored_scales,
                        int64_t matrices, int32_t k, int32_t n) {
    std::vector<float> in(columns.size());
    for (int64_t i = 0; i < std::ssize(columns); ++i) {
      const int64_t matrix = i / (int64_t{n} * k), column = i / k % n, depth = i % k;
      in[(matrix * k + depth) * n + column] = columns[i];
    }
    const float* const weight = lab_.Put(in);
    float *scales = nullptr, *factors = nullptr;
    if (stored_scales.empty()) {
      scales = lab_.Room<float>(matrices * n);
      factors = lab_.Room<float>(matrices * n);
      ScaleColumns(lab_.stream(), {.in = weight,
                                   .matrices = matrices,
                                   .k = k,
                                   .n = n,
                                   .scales = scales,
                                   .factors = factors});
    } else {
      scales = lab_.Put(stored_scales);
    }
    int8_t* const values = lab_.Room<int8_t>(matrices * n * Int8Stride(k));
    QuantizeColumns(
        lab_.stream(),
        {.in = weight, .matrices = matrices, .k = k, .n = n, .factors = factors, .out = values});
    return {values, scales};
  }
  const int8_t* Packed(const Weight& weight, int64_t matrices, int32_t k, int32_t n) {
    int8_t* const packed = lab_.Room<int8_t>(PackedElements<int8_t>(matrices, k, n));
    PackWeights<int8_t>(
        lab_.stream(),
        {.in = weight.columns, .matrices = matrices, .k = Int8Stride(k), .n = n, .out = packed});
    return packed;
  }

  struct Rows {
    const int8_t* values;
    const float* scales;
  };
  Rows Quantize(const std::vector<T>& x, int32_t rows, int32_t k) {
    int8_t* const values = lab_.Room<int8_t>(rows * Int8Stride(k));
    float* const scales = lab_.Room<float>(rows);
    QuantizeRows<T>(
        lab_.stream(),
        {.x = lab_.Put(x), .k = k, .rows = Live(rows), .out = values, .scales = scales});
    return {values, scales};
  }

  Args ArgsOf(const Rows& rows, const Weight& weight, int64_t matrices, int32_t k, int32_t n,
              const RowTiles& tiles, T* out) {
    return {.x = rows.values,
            .weight = Packed(weight, matrices, k, n),
            .bias = nullptr,
            .bias_stride = 0,
            .k = Int8Stride(k),
            .n = n,
            .tiles = tiles,
            .accumulate = false,
            .out = out,
            .row_scales = rows.scales,
            .scales = weight.scales};
  }

  std::vector<T> Product(const Int8Inputs<T>& in) {
    const auto rows = static_cast<int32_t>(in.rows), k = static_cast<int32_t>(in.k);
    const auto n = static_cast<int32_t>(in.n);
    Args args = ArgsOf(Quantize(in.x, rows, k), WeightOf(in), 1, k, n,
                       TilesOn(lab_, {{0, 0, rows}}, rows + 5), OutOf(in));
    if (!in.bias.empty()) args.bias = lab_.Put(in.bias);
    args.accumulate = !in.before.empty();
    Project(lab_.stream(), args);
    const std::vector<T> out = lab_.Get(args.out, rows * n);
    lab_.Clear();
    return out;
  }
  // Computes the product with ScaleSums from sums that the host computes, in two slices.
  std::vector<T> ProductBySums(const Int8Inputs<T>& in) {
    const auto rows = static_cast<int32_t>(in.rows), n = static_cast<int32_t>(in.n);
    const auto k = static_cast<int32_t>(in.k), stride = Int8Stride(k), spare = 3;
    const Rows x = Quantize(in.x, rows, k);
    const Weight weight = WeightOf(in);
    const std::vector<int8_t> left = lab_.Get(x.values, rows * stride);
    const std::vector<int8_t> right = lab_.Get(weight.columns, n * stride);
    std::vector<int32_t> sums((rows + spare) * n, 12345);
    for (int32_t i = 0; i < rows * n; ++i) {
      sums[i] = std::inner_product(&left[i / n * stride], &left[i / n * stride] + stride,
                                   &right[i % n * stride], 0);
    }
    ScaleSumsArgs<T> args = {.sums = nullptr,
                             .n = n,
                             .rows = Live(rows),
                             .row_scales = x.scales,
                             .scales = weight.scales,
                             .accumulate = !in.before.empty(),
                             .out = OutOf(in)};
    if (!in.bias.empty()) args.bias = lab_.Put(in.bias);
    const int32_t cut = rows / 2;
    for (const auto& [first, count] : {std::pair(0, cut), {cut, rows + spare - cut}}) {
      args.sums = lab_.Put(std::vector<int32_t>(sums.begin() + int64_t{first} * n,
                                                sums.begin() + int64_t{first + count} * n));
      args.first = first;
      args.rows.capacity = count;
      if (count > 0) ScaleSums(lab_.stream(), args);
    }
    const std::vector<T> out = lab_.Get(args.out, rows * n);
    lab_.Clear();
    return out;
  }
  auto Run() {
    return [this](const Int8Inputs<T>& in) { return Product(in); };
  }
  auto RunBySums() {
    return [this](const Int8Inputs<T>& in) { return ProductBySums(in); };
  }

 private:
  Weight WeightOf(const Int8Inputs<T>& in) {
    std::vector<float> columns = in.columns;
    columns.insert(columns.end(), in.stored.begin(), in.stored.end());
    return QuantizeWeight(columns, in.scales, 1, static_cast<int32_t>(in.k),
                          static_cast<int32_t>(in.n));
  }
  T* OutOf(const Int8Inputs<T>& in) {
    return in.before.empty() ? lab_.Room<T>(in.rows * in.n) : lab_.Put(in.before);
  }
};
TYPED_TEST_SUITE(Int8Test, DTypes);

TYPED_TEST(Int8Test, ProductsHaveTheBitsOfTheReference) {
  using Shape = std::tuple<int64_t, int64_t, int64_t>;
  for (const auto& [rows, k, n] :
       {Shape{1, 1, 1}, Shape{3, 5, 130}, Shape{65, 128, 64}, Shape{9, 127, 63}, Shape{64, 129, 66},
        Shape{5, 1100, 9}, Shape{17, 520, 40}}) {
    ExpectInt8EqualsReference(this->Run(), RandomInt8Inputs<TypeParam>(this->random_, rows, k, n));
    ExpectInt8EqualsReference(this->RunBySums(),
                              RandomInt8Inputs<TypeParam>(this->random_, rows, k, n));
  }
}
TYPED_TEST(Int8Test, TheLargestSumsDoNotSaturate) {
  ExpectInt8SumsDoNotSaturate<TypeParam>(this->Run());
  ExpectInt8SumsDoNotSaturate<TypeParam>(this->RunBySums());
}
TYPED_TEST(Int8Test, StoredValuesKeepTheirScales) {
  ExpectStoredInt8KeepsItsScales<TypeParam>(this->Run(), this->random_);
  ExpectStoredInt8KeepsItsScales<TypeParam>(this->RunBySums(), this->random_);
}
TYPED_TEST(Int8Test, ValuesThatAreNotFiniteMakeTheirRowOrColumnNaNAndNoOther) {
  ExpectInt8KeepsWhatIsNotFiniteApart<TypeParam>(this->Run(), this->random_);
  ExpectInt8KeepsWhatIsNotFiniteApart<TypeParam>(this->RunBySums(), this->random_);
}

TYPED_TEST(Int8Test, RowsEqualTheReferenceAndArePaddedWithZeros) {
  using T = TypeParam;
  for (const int32_t k : {1, 127, 128, 129, 2049, 2056}) {
    const int32_t rows = 21, stride = Int8Stride(k);
    std::vector<T> x = RandomRows<T>(this->random_, rows, k);
    x[3 * k] = Narrow<T>(kPoison);
    x[4 * k + k - 1] = Narrow<T>(kInfinity);
    const auto quantized = this->Quantize(x, rows, k);
    const std::vector<int8_t> values = this->lab_.Get(quantized.values, rows * stride);
    const std::vector<float> scales = this->lab_.Get(quantized.scales, rows);
    const std::vector<Quantized> expected = QuantizeEach(x, k);
    for (int32_t r = 0; r < rows; ++r) {
      ASSERT_TRUE(kernels::SameBits(scales[r], expected[r].scale)) << "row " << r << " of " << k;
      std::vector<int8_t> row = expected[r].values;
      row.resize(stride);
      ASSERT_EQ(std::vector<int8_t>(&values[r * stride], &values[r * stride] + stride), row)
          << "row " << r << " of " << k;
    }
    this->lab_.Clear();
  }
}

TYPED_TEST(Int8Test, ColumnsEqualTheReferenceAndArePaddedWithZeros) {
  for (const auto& [matrices, k, n] :
       {std::tuple(1, 1, 1), {2, 127, 33}, {1, 128, 64}, {3, 129, 5}, {1, 300, 257}}) {
    const int32_t stride = Int8Stride(k);
    const std::vector<float> columns = RandomRows<float>(this->random_, matrices * n, k);
    const auto weight = this->QuantizeWeight(columns, {}, matrices, k, n);
    const std::vector<int8_t> values = this->lab_.Get(weight.columns, matrices * n * stride);
    const std::vector<Quantized> expected = QuantizeEach(columns, k);
    for (int32_t c = 0; c < matrices * n; ++c) {
      std::vector<int8_t> column = expected[c].values;
      column.resize(stride);
      ASSERT_EQ(std::vector<int8_t>(&values[c * stride], &values[c * stride] + stride), column)
          << "column " << c << " of " << k << " x " << n;
    }
    this->lab_.Clear();
  }
}

TYPED_TEST(Int8Test, GroupsUseTheirPositionsMatrixAndTilesChangeNoBit) {
  using T = TypeParam;
  constexpr int32_t kDepth = 1090, kColumns = 70, kMatrices = 3, kRows = 140;
  const std::vector<float> columns = RandomRows<float>(this->random_, kMatrices * kColumns, kDepth);
  const std::vector<T> x = RandomRows<T>(this->random_, kRows, kDepth);
  const auto weight = this->QuantizeWeight(columns, {}, kMatrices, kDepth, kColumns);
  const auto rows = this->Quantize(x, kRows, kDepth);
  const std::vector<Quantized> of_rows = QuantizeEach(x, kDepth);
  const std::vector<Quantized> of_columns = QuantizeEach(columns, kDepth);
  std::set<std::string> kernels;
  for (const int32_t first : {0, 3, kRows}) {  // the rows of position 0; the others have position 2
    for (const int32_t processors : {kFewProcessors, kManyProcessors}) {
      StreamOfProcessors stream(this->lab_.stream(), processors);
      std::vector<RowGroup> groups;
      if (first > 0) groups.push_back({0, 0, first});
      if (first < kRows) groups.push_back({2, first, kRows - first});
      T* const out = this->lab_.template Room<T>(kRows * kColumns);
      auto args = this->ArgsOf(rows, weight, kMatrices, kDepth, kColumns,
                               TilesOn(this->lab_, groups, kRows), out);
      Project(stream, args);
      kernels.insert(stream.kernel());
      const std::vector<T> got = this->lab_.Get(out, kRows * kColumns);
      for (int32_t i = 0; i < kRows * kColumns; ++i) {
        const int32_t r = i / kColumns, matrix = r < first ? 0 : 2;
        const float expected =
            reference::Int8Product(of_rows[r], of_columns[matrix * kColumns + i % kColumns]);
        ASSERT_TRUE(kernels::SameBits(Widen(got[i]), Widen(Narrow<T>(expected))))
            << "row " << r << " column " << i % kColumns << " of " << stream.kernel();
      }
    }
  }
  EXPECT_EQ(kernels, (std::set<std::string>{"Projection", "ProjectionFewRows", "ProjectionLarge"}));
}

}  // namespace
}  // namespace sluice::kernels::cuda
