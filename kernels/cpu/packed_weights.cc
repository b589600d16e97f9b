#include "kernels/cpu/packed_weights.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>
#include <new>
#include <span>
#include <vector>

#include "base/ceil_div.h"
#include "base/check.h"
#include "base/size_of.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {
namespace {

// The layouts of a panel's elements; see simd::Table.
struct F32Panel {
  using Element = float;
  static float Narrow(float value) { return value; }
  static int64_t Slot(int64_t row, int64_t col, int64_t width) { return row * width + col; }
  static int64_t Rows(int64_t k) { return k; }
};
struct BF16Panel {
  using Element = uint16_t;
  // Requires a value that was widened from bf16, so that nothing is lost.
  static uint16_t Narrow(float value) {
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  }
  static int64_t Slot(int64_t row, int64_t col, int64_t width) {
    return row * width + (col < width / 2 ? 2 * col : 2 * col - width + 1);
  }
  static int64_t Rows(int64_t k) { return k; }
};
struct PairsPanel : BF16Panel {
  static int64_t Slot(int64_t row, int64_t col, int64_t width) {
    return row / 2 * 2 * width + 2 * col + row % 2;
  }
  static int64_t Rows(int64_t k) { return CeilDiv(k, simd::kPairsDepth) * simd::kPairsDepth; }
};

// Calls `use` with the panel type of weights of `dtype` under `table`.
template <typename Use>
auto WithPanelType(DType dtype, const simd::Table& table, Use use) {
  if (dtype != DType::kBF16) return use(F32Panel{});
  return table.pairs ? use(PairsPanel{}) : use(BF16Panel{});
}

// Copies columns [col, col + cols) of one source matrix to a panel, with zeros after `cols` and k.
template <typename Panel>
void PackPanel(const WeightSource& source, int64_t matrix, int64_t col, int64_t cols, int64_t width,
               typename Panel::Element* panel) {
  constexpr int64_t kRun = 64;
  float run[kRun];
  SLUICE_CHECK(width <= kRun);
  const int64_t rows = Panel::Rows(source.k);
  if (cols < width || source.k < rows) {
    std::fill(panel, panel + rows * width, typename Panel::Element{});
  }
  const void* const data = source.matrix(matrix);
  if (!source.transposed) {
    for (int64_t row = 0; row < source.k; ++row) {
      ConvertToFloat(data, source.dtype, row * source.n + col, cols, run);
      for (int64_t c = 0; c < cols; ++c) panel[Panel::Slot(row, c, width)] = Panel::Narrow(run[c]);
    }
    return;
  }
  for (int64_t first = 0; first < source.k; first += kRun) {
    const int64_t count = std::min(kRun, source.k - first);
    for (int64_t c = 0; c < cols; ++c) {
      ConvertToFloat(data, source.dtype, (col + c) * source.k + first, count, run);
      for (int64_t i = 0; i < count; ++i) {
        panel[Panel::Slot(first + i, c, width)] = Panel::Narrow(run[i]);
      }
    }
  }
}

// Packs panels [begin, end), counted over all matrices; the first matrix begins at `packed`.
template <typename Panel>
void PackPanels(const WeightSource& source, int64_t width, int64_t begin, int64_t end,
                std::byte* packed) {
  const int64_t panels = CeilDiv(source.n, width);
  auto* elements = reinterpret_cast<typename Panel::Element*>(packed);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t col = i % panels * width;
    PackPanel<Panel>(source, i / panels, col, std::min(width, source.n - col), width,
                     elements + i * width * Panel::Rows(source.k));
  }
}

// Panels of int8, in the order of each unit in simd/int8.h: four rows of a column are adjacent.
struct Int8Panel {
  static constexpr int64_t kFour = 4;
  static int64_t Slot(int64_t row, int64_t col, int64_t width) {
    return (row / kFour * width + col) * kFour + row % kFour;
  }
  static int64_t Rows(int64_t k) { return CeilDiv(k, simd::kInt8Depth) * simd::kInt8Depth; }
};

// The arrays of a matrix in int8.
struct Int8Matrix {
  int8_t* values;        // panels
  float* scales;         // [panels * width]
  int32_t* corrections;  // like scales
};

// Returns the magnitude that is quantised to kInt8Most. `bits` are the largest bits of the
// magnitudes in a column. Returns 0 if all values count as zeros, and NaN if a value is not finite.
float LargestOf(uint32_t bits) {
  constexpr uint32_t kInfinity = 0x7F800000;
  if (bits >= kInfinity) return std::numeric_limits<float>::quiet_NaN();
  const float largest = std::bit_cast<float>(bits);
  return largest >= simd::kInt8Least ? largest : 0;
}

// Quantises a panel of f32 by columns, in the same way as a row of x (simd/int8.h). Values that are
// stored in int8 keep their scales.
void QuantizePanel(std::span<const float> panel, const float* stored_scales, int64_t width,
                   const Int8Matrix& out) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to integers
  const int64_t rows = std::ssize(panel) / width;
  std::vector<uint32_t> bits(width, 0);
  for (int64_t row = 0; row < rows; ++row) {
    const float* const values = &panel[row * width];
    for (int64_t c = 0; c < width; ++c) {
      bits[c] = std::max(bits[c], std::bit_cast<uint32_t>(values[c]) & 0x7FFFFFFF);
    }
  }
  std::vector<float> inverse(width, 1);
  for (int64_t c = 0; c < width && stored_scales == nullptr; ++c) {
    const float largest = LargestOf(bits[c]);
    inverse[c] = largest > 0 ? simd::kInt8Most / largest : 0;
    out.scales[c] = largest / simd::kInt8Most;
  }
  std::vector<int32_t> sums(width, 0);
  for (int64_t row = 0; row < rows; ++row) {
    const float* const values = &panel[row * width];
    for (int64_t c = 0; c < width; ++c) {
      const float rounded = (inverse[c] > 0 ? values[c] : 0) * inverse[c] + kRound;
      const auto value = static_cast<int8_t>(std::bit_cast<int32_t>(rounded) - 0x4B400000);
      out.values[Int8Panel::Slot(row, c, width)] = value;
      sums[c] += value;
    }
  }
  for (int64_t c = 0; c < width; ++c) out.corrections[c] = simd::kInt8Offset * sums[c];
}

// Packs panels [begin, end), counted over all matrices; `first` is the first matrix.
void PackInt8Panels(const WeightSource& source, int64_t width, int64_t begin, int64_t end,
                    const Int8Matrix& first) {
  const int64_t panels = CeilDiv(source.n, width);
  std::vector<float> values(source.k * width);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t col = i % panels * width, cols = std::min(width, source.n - col);
    const Int8Matrix panel = {.values = first.values + i * width * Int8Panel::Rows(source.k),
                              .scales = first.scales + i * width,
                              .corrections = first.corrections + i * width};
    std::fill_n(panel.values, width * Int8Panel::Rows(source.k), int8_t{0});
    std::fill_n(panel.scales, width, 0.0f);
    PackPanel<F32Panel>(source, i / panels, col, cols, width, values.data());
    const float* stored = nullptr;
    if (source.dtype == DType::kI8) {
      stored = source.scales + i / panels * source.n + col;
      std::copy_n(stored, cols, panel.scales);
    }
    QuantizePanel(values, stored, width, panel);
  }
}

int64_t BitsOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return 32;
    case WeightFormat::kBF16:
      return 16;
    case WeightFormat::kInt8:
      return 8;
    case WeightFormat::kInt4:
      break;
  }
  return 4;
}

WeightFormat FloatFormatOf(DType dtype) {
  return dtype == DType::kBF16 ? WeightFormat::kBF16 : WeightFormat::kF32;
}

// Returns the rows of a panel of weights in floats, with the rows of zeros.
int64_t PanelRows(const simd::Table& table, int64_t k, DType dtype) {
  return WithPanelType(dtype, table, [&]<typename Panel>(Panel) { return Panel::Rows(k); });
}

}  // namespace

void PackedWeights::Free::operator()(std::byte* p) const { std::free(p); }

PackedWeights::PackedWeights(const Shape& shape, WeightFormat format, int64_t width,
                             int64_t panel_rows)
    : format_(format),
      bits_(BitsOf(format)),
      matrices_(shape.matrices),
      k_(shape.k),
      n_(shape.n),
      panel_rows_(panel_rows) {
  SLUICE_CHECK(matrices_ >= 1 && k_ >= 1 && n_ >= 1);
  padded_n_ = CeilDiv(n_, width) * width;
  bytes_ = matrices_ * padded_n_ * panel_rows_ * bits_ / 8;
  data_ = Allocate(bytes_);
}

PackedWeights::Memory PackedWeights::Allocate(int64_t bytes) {
  Memory memory(static_cast<std::byte*>(AllocateMemory(bytes)));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

int64_t PackedWeights::BytesOf(const Context& context, int64_t k, int64_t n, DType dtype) {
  const simd::Table& table = simd::TableFor(context.profile);
  const WeightFormat format = FloatFormatOf(dtype);
  return CeilDiv(n, table.panel_cols) * table.panel_cols * PanelRows(table, k, dtype) *
         BitsOf(format) / 8;
}

PackedWeights PackedWeights::Pack(const Context& context, const WeightSource& source) {
  SLUICE_CHECK(source.dtype != DType::kI8);
  const simd::Table& table = simd::TableFor(context.profile);
  const int64_t width = table.panel_cols;
  const DType dtype = source.dtype == DType::kBF16 ? DType::kBF16 : DType::kF32;
  PackedWeights packed({source.matrices, source.k, source.n}, FloatFormatOf(dtype), width,
                       PanelRows(table, source.k, dtype));
  const auto pack =
      WithPanelType(dtype, table, []<typename Panel>(Panel) { return &PackPanels<Panel>; });
  context.pool->ParallelFor(source.matrices * packed.padded_n_ / width, 1,
                            [&](int64_t begin, int64_t end, int) {
                              pack(source, width, begin, end, packed.data_.get());
                            });
  return packed;
}

PackedWeights PackedWeights::PackInt8(const Context& context, const WeightSource& source) {
  SLUICE_CHECK((source.dtype == DType::kI8) == (source.scales != nullptr));
  const int64_t width = simd::Int8TableFor(context.profile).panel_cols;
  PackedWeights packed({source.matrices, source.k, source.n}, WeightFormat::kInt8, width,
                       Int8Panel::Rows(source.k));
  const int64_t columns = packed.matrices_ * packed.padded_n_;
  packed.scales_ = Allocate(columns * kSizeOf<float>);
  packed.corrections_ = Allocate(columns * kSizeOf<int32_t>);
  packed.bytes_ += columns * (kSizeOf<float> + kSizeOf<int32_t>);
  const Int8Matrix first = {.values = reinterpret_cast<int8_t*>(packed.data_.get()),
                            .scales = reinterpret_cast<float*>(packed.scales_.get()),
                            .corrections = reinterpret_cast<int32_t*>(packed.corrections_.get())};
  context.pool->ParallelFor(columns / width, 1, [&](int64_t begin, int64_t end, int) {
    PackInt8Panels(source, width, begin, end, first);
  });
  if (!source.kept.channels.empty()) packed.Keep(source.kept);
  return packed;
}

void PackedWeights::Keep(const KeptSource& source) {
  SLUICE_CHECK(matrices_ == 1 && source.channels.back() < k_);
  const int64_t channels = std::ssize(source.channels);
  kept_channels_.assign(source.channels.begin(), source.channels.end());
  kept_.assign(channels * padded_n_, 0.0f);
  std::vector<float> column(channels);
  for (int64_t c = 0; c < n_; ++c) {
    ConvertToFloat(source.weights, source.dtype, c * channels, channels, column.data());
    for (int64_t i = 0; i < channels; ++i) kept_[i * padded_n_ + c] = column[i];
  }
  bytes_ += std::ssize(kept_) * kSizeOf<float> + channels * kSizeOf<int32_t>;
}

}  // namespace sluice::kernels
