// Weights in int4; see simd/int8.h for their panels.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "base/ceil_div.h"
#include "base/check.h"
#include "base/size_of.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/quantized_rows.h"
#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {
namespace {

constexpr int32_t kZero = 8, kMaxCode = 15;

// A panel in int4. Columns past the end of the matrix have scales of 0.
struct Int4Panel {
  uint8_t* codes;  // see simd::Int4Block
  float* scales;   // [groups, width]
  uint8_t* zeros;  // like scales, or nullptr
  int64_t width;

  void Set(int64_t row, int64_t col, uint8_t code) const {
    constexpr int64_t kEight = 8, kFour = 4;
    uint8_t& byte = codes[(row / kEight * width + col) * kFour + row % kFour];
    byte |= row % kEight < kFour ? code : code << kFour;
  }
};

// Returns the value of the largest magnitude, the first of equal ones; NaN if a value is not
// finite.
float LargestOf(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) return std::numeric_limits<float>::quiet_NaN();
    if (std::abs(value) > std::abs(largest)) largest = value;
  }
  return largest;
}

// Quantises the values of a group as described at PackInt4. Returns their scale.
float QuantizeGroup(std::span<const float> values, std::span<uint8_t> codes) {
  std::fill(codes.begin(), codes.end(), uint8_t{kZero});
  const float largest = LargestOf(values);
  if (std::abs(largest) < simd::kInt8Least) return 0;
  if (std::isnan(largest)) return largest;
  const float inverse = -kZero / largest;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto code = static_cast<int32_t>(std::nearbyint(values[i] * inverse)) + kZero;
    codes[i] = static_cast<uint8_t>(std::min(code, kMaxCode));
  }
  return largest / -kZero;
}

// Copies column `col` of a matrix.
void LoadColumn(const WeightSource& source, int64_t matrix, int64_t col, std::span<float> out) {
  const void* const data = source.matrix(matrix);
  if (source.transposed) {
    return ConvertToFloat(data, source.dtype, col * source.k, source.k, out.data());
  }
  for (int64_t row = 0; row < source.k; ++row) {
    out[row] = LoadAsFloat(data, source.dtype, row * source.n + col);
  }
}

}  // namespace

PackedWeights PackedWeights::Int4(const Context& context, const Shape& shape, int64_t group,
                                  bool zeros) {
  SLUICE_CHECK(group % QuantizedRows::kSummed == 0 && group > 0);
  const int64_t rows = CeilDiv(shape.k, simd::kInt8Depth) * simd::kInt8Depth;
  const int64_t width = simd::Int8TableFor(context.profile).panel_cols;
  PackedWeights packed(shape, WeightFormat::kInt4, width, rows);
  packed.group_ = group;
  packed.groups_ = CeilDiv(rows, group);
  const int64_t each = packed.matrices_ * packed.padded_n_ * packed.groups_;
  packed.scales_ = Allocate(each * kSizeOf<float>);
  packed.bytes_ += each * kSizeOf<float>;
  std::fill_n(reinterpret_cast<float*>(packed.scales_.get()), each, 0.0f);
  if (zeros) {
    packed.zeros_ = Allocate(each);
    packed.bytes_ += each;
    std::fill_n(reinterpret_cast<uint8_t*>(packed.zeros_.get()), each, uint8_t{kZero});
  }
  return packed;
}

template <typename Fill>
void PackedWeights::FillInt4(const Context& context, const Fill& fill) {
  const int64_t width = simd::Int8TableFor(context.profile).panel_cols;
  const int64_t panels = padded_n_ / width, bytes = width * panel_rows_ / 2;
  context.pool->ParallelFor(matrices_ * panels, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t matrix = i / panels, col = i % panels * width;
      const Int4Panel panel = {.codes = reinterpret_cast<uint8_t*>(data_.get()) + i * bytes,
                               .scales = const_cast<float*>(group_scales(matrix, col)),
                               .zeros = const_cast<uint8_t*>(group_zeros(matrix, col)),
                               .width = width};
      std::fill_n(panel.codes, bytes, uint8_t{0});
      for (int64_t c = 0; c < std::min(width, n_ - col); ++c) fill(panel, matrix, col + c, c);
    }
  });
}

PackedWeights PackedWeights::PackInt4(const Context& context, const WeightSource& source,
                                      int64_t group) {
  SLUICE_CHECK(source.dtype != DType::kI8);
  PackedWeights packed = Int4(context, {source.matrices, source.k, source.n}, group, false);
  packed.FillInt4(context, [&](const Int4Panel& panel, int64_t matrix, int64_t col, int64_t c) {
    std::vector<float> column(source.k);
    std::vector<uint8_t> codes(source.k);
    LoadColumn(source, matrix, col, column);
    for (int64_t first = 0, g = 0; first < source.k; first += group, ++g) {
      const int64_t count = std::min(group, source.k - first);
      panel.scales[g * panel.width + c] = QuantizeGroup(std::span(column).subspan(first, count),
                                                        std::span(codes).subspan(first, count));
    }
    for (int64_t row = 0; row < source.k; ++row) panel.Set(row, c, codes[row]);
  });
  return packed;
}

PackedWeights PackedWeights::PackInt4(const Context& context, const Int4Source& source) {
  PackedWeights packed =
      Int4(context, {1, source.k, source.n}, source.group, source.zeros != nullptr);
  const int64_t groups = CeilDiv(source.k, source.group);
  packed.FillInt4(context, [&](const Int4Panel& panel, int64_t, int64_t col, int64_t c) {
    for (int64_t row = 0; row < source.k; ++row) {
      panel.Set(row, c, source.codes[col * source.k + row]);
    }
    for (int64_t g = 0; g < groups; ++g) {
      panel.scales[g * panel.width + c] = source.scales[col * groups + g];
      if (source.zeros == nullptr) continue;
      panel.zeros[g * panel.width + c] = source.zeros[col * groups + g];
    }
  });
  return packed;
}

}  // namespace sluice::kernels
