// Products in int8 whose weights keep some channels in floats have the bits of the reference on
// every unit, in any batch. Their rows are quantised without those channels.
#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "kernels/cpu/gemm.h"
#include "kernels/reference/int8.h"
#include "tests/kernels/cpu/quantized_fixture.h"

namespace sluice::kernels {
namespace {

class KeptChannelsTest : public QuantizedTest {};

// A matrix that is stored in int8, its kept channels, and rows that enter it.
struct Layer {
  int64_t rows, k, n;
  std::vector<float> x;
  std::vector<int8_t> stored;
  std::vector<float> scales;
  std::vector<int32_t> channels;
  std::vector<float> kept;  // [n, channels], each a bf16
  std::vector<float> factors;

  Layer(std::mt19937_64& random, const Shape& shape)
      : rows(shape.rows), k(shape.k), n(shape.n), x(RandomRows(random, rows, k)), stored(n * k) {
    for (int8_t& value : stored) value = static_cast<int8_t>(random());
    scales = RandomFloats(random, n);
    std::vector<int32_t> all(k);
    std::iota(all.begin(), all.end(), 0);
    std::ranges::shuffle(all, random);
    channels.assign(all.begin(), all.begin() + RandomInt(random, 1, std::min<int64_t>(k, 40)));
    std::ranges::sort(channels);
    for (int64_t i = 0; i < n * std::ssize(channels); ++i) {
      const uint32_t bits = RoundToBF16(std::normal_distribution<float>()(random));
      kept.push_back(std::bit_cast<float>(bits << 16));
    }
    factors.assign(k, 1.0f);
    for (const int32_t channel : channels) {
      factors[channel] = 0;
      // Kept values are larger than all others, in some rows by orders of magnitude.
      for (int64_t r = 0; r < rows; ++r) x[r * k + channel] *= random() % 2 == 0 ? 8 : 1024;
    }
  }

  // Packs the matrix, with its kept weights stored as one dtype or the other.
  PackedWeights Pack(const Context& context, bool bf16) const {
    std::vector<uint16_t> narrow;
    for (const float value : kept) narrow.push_back(RoundToBF16(value));
    return PackedWeights::PackInt8(
        context, {.data = stored.data(),
                  .dtype = DType::kI8,
                  .matrices = 1,
                  .k = k,
                  .n = n,
                  .transposed = true,
                  .scales = scales.data(),
                  .kept = {.channels = channels,
                           .weights = bf16 ? static_cast<const void*>(narrow.data()) : kept.data(),
                           .dtype = bf16 ? DType::kBF16 : DType::kF32}});
  }

  // Returns the product of a row by all columns.
  std::vector<float> Expected(int64_t row) const {
    std::vector<float> rest, x_kept, y;
    for (int64_t d = 0; d < k; ++d) rest.push_back(x[row * k + d] * factors[d]);
    for (const int32_t channel : channels) x_kept.push_back(x[row * k + channel]);
    const Quantized quantized = reference::Quantize(rest);
    for (int64_t c = 0; c < n; ++c) {
      const auto first = stored.begin() + c * k;
      const std::span w_kept = std::span(kept).subspan(c * channels.size(), channels.size());
      y.push_back(
          reference::Int8Product(quantized, {{first, first + k}, scales[c]}, x_kept, w_kept));
    }
    return y;
  }
};

TEST_P(KeptChannelsTest, ProductsHaveTheBitsOfTheReference) {
  SCOPED_TRACE(Trace());
  for (const Shape& shape : Shapes(random_)) {
    const Layer layer(random_, shape);
    SCOPED_TRACE(testing::Message() << layer.rows << " x " << layer.k << " x " << layer.n);
    const PackedWeights packed = layer.Pack(Two(), random_() % 2 == 0);
    const Rows quantized(Two(), layer.x, layer.rows, layer.k, false, layer.factors.data());
    const std::vector<float> bias = RandomFloats(random_, layer.n);
    const std::vector<float> before = RandomFloats(random_, layer.rows * layer.n);
    std::vector<float> out = before;
    Gemm(Two(), packed, layer.rows,
         {layer.x.data(), layer.k, bias.data(), 0, out.data(), layer.n, true, quantized.rows()});
    for (int64_t r = 0; r < layer.rows; ++r) {
      const std::vector<float> product = layer.Expected(r);
      for (int64_t c = 0; c < layer.n; ++c) {
        const float with_bias = product[c] + bias[c];
        const float expected = before[r * layer.n + c] + with_bias;
        ASSERT_TRUE(SameBits(out[r * layer.n + c], expected))
            << "row " << r << " column " << c << ": " << Bits(out[r * layer.n + c]) << ", not "
            << Bits(expected);
      }
    }
  }
}

TEST_P(KeptChannelsTest, AKeptValueThatIsNotFiniteMakesItsRowNaNAndNoOther) {
  SCOPED_TRACE(Trace());
  for (const float value : {kPoison, std::numeric_limits<float>::infinity()}) {
    Layer layer(random_, {9, 70, 33});
    layer.x[4 * layer.k + layer.channels.front()] = value;
    const PackedWeights packed = layer.Pack(Two(), true);
    const Rows quantized(Two(), layer.x, layer.rows, layer.k, false, layer.factors.data());
    std::vector<float> out(layer.rows * layer.n);
    Gemm(Two(), packed, layer.rows,
         {layer.x.data(), layer.k, nullptr, 0, out.data(), layer.n, false, quantized.rows()});
    for (int64_t i = 0; i < std::ssize(out); ++i) {
      EXPECT_EQ(std::isnan(out[i]), i / layer.n == 4) << i;
    }
  }
}

SLUICE_EVERY_UNIT(KeptChannelsTest);

}  // namespace
}  // namespace sluice::kernels
