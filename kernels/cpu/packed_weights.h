// Weights in the layout that the kernels of a profile read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cpu/context.h"
#include "kernels/dtype.h"

namespace sluice::kernels {

// The weights of input channels that are multiplied in f32, in addition to columns stored as kI8.
struct KeptSource {
  std::span<const int32_t> channels;  // ascending, each below k
  const void* weights;                // [n, channels]
  DType dtype;
};

// The source of a weight matrix: `matrices` consecutive matrices, each either [k, n] row-major
// ("in, out": position-wise tensors) or [n, k] ("out, in": Linear layers).
struct WeightSource {
  const void* data;  // not aligned; only read during packing. Not used with `each`.
  DType dtype;
  int64_t matrices;
  int64_t k;
  int64_t n;
  bool transposed;                         // true: stored [n, k]
  const float* scales = nullptr;           // [matrices, n], of columns that are stored as kI8
  KeptSource kept = {};                    // of a single matrix that is stored as kI8
  std::span<const void* const> each = {};  // the matrices, if they are not consecutive

  const void* matrix(int64_t i) const {
    if (!each.empty()) return each[i];
    return static_cast<const std::byte*>(data) + i * k * n * DTypeBytes(dtype);
  }
};

// The source of a matrix whose columns are stored in int4, in groups along k. Each group has a
// scale and a zero point: a weight is (code - zero) * scale.
struct Int4Source {
  int64_t k;
  int64_t n;
  int64_t group;         // 32, 64 or 128 rows; the last group of a column may be shorter
  const uint8_t* codes;  // [n, k], each below 16
  const float* scales;   // [n, ceil(k / group)]
  const uint8_t* zeros;  // like scales, each at most 16, or nullptr if all are 8
};

// The format of packed weights.
enum class WeightFormat { kF32, kBF16, kInt8, kInt4 };

// Immutable weights in panels, the profile's tile order. Move-only.
class PackedWeights {
 public:
  PackedWeights() = default;
  // Keeps bf16 if the source is bf16, and widens to f32 otherwise. Under the f32 profiles both give
  // bitwise the same results. The dtype must not be kI8.
  static PackedWeights Pack(const Context& context, const WeightSource& source);
  // Returns bytes() of a matrix that Pack makes of a source of this type.
  static int64_t BytesOf(const Context& context, int64_t k, int64_t n, DType dtype);
  // Quantises to int8 by columns, that is by output channels: a value is round(w * (127 / max|w|)),
  // ties to even, and the column's scale is max|w| / 127. If a value is not finite, the scale of
  // its column is NaN. A matrix stored as kI8 stays unchanged, with its scales and kept channels.
  static PackedWeights PackInt8(const Context& context, const WeightSource& source);
  // Quantises to int4 by columns, in groups of `group` rows (32, 64 or 128): with m the value of
  // the largest magnitude in a group (the first of equal ones), its scale is m / -8 and a code is
  // round(w * (-8 / m)) + 8, ties to even, at most 15. Groups with an m below 2^-100 count as
  // zeros. If a value is not finite, the scale of its group is NaN. The dtype must not be kI8.
  static PackedWeights PackInt4(const Context& context, const WeightSource& source, int64_t group);
  // Keeps the stored codes, scales and zero points.
  static PackedWeights PackInt4(const Context& context, const Int4Source& source);

  int64_t matrices() const { return matrices_; }
  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  int64_t bytes() const { return bytes_; }
  WeightFormat format() const { return format_; }
  // Returns whether rows must be quantised to be multiplied with these weights.
  bool quantized() const {
    return format_ == WeightFormat::kInt8 || format_ == WeightFormat::kInt4;
  }
  // Returns the rows of a group if the weights are int4.
  int64_t group() const { return group_; }
  // Returns matrix `i` from column `col` on, which must be the first column of a panel. Only the
  // kernels of `profile` know the layout.
  const void* panels(int64_t i, int64_t col) const {
    return data_.get() + (i * padded_n_ + col) * panel_rows_ * bits_ / 8;
  }
  // Return the numbers of int8 panels for each column, from column `col` of matrix `i` on up to the
  // end of the last panel: scales, and corrections (see simd/int8.h).
  const float* scales(int64_t i, int64_t col) const {
    return reinterpret_cast<const float*>(scales_.get()) + i * padded_n_ + col;
  }
  const int32_t* corrections(int64_t i, int64_t col) const {
    return reinterpret_cast<const int32_t*>(corrections_.get()) + i * padded_n_ + col;
  }
  // Return the input channels that int8 panels keep in f32, and their weights from column `col` on:
  // [channels, ..], row stride kept_stride(), up to the end of the last panel. The rows to multiply
  // are quantised with zeros in these channels.
  std::span<const int32_t> kept_channels() const { return kept_channels_; }
  const float* kept(int64_t col) const { return kept_.data() + col; }
  int64_t kept_stride() const { return padded_n_; }
  // Return the numbers of int4 panels for each group and column, from the panel of column `col` of
  // matrix `i` on: [panels, groups, panel's columns]. The zero points are nullptr if all are 8.
  const float* group_scales(int64_t i, int64_t col) const {
    return reinterpret_cast<const float*>(scales_.get()) + (i * padded_n_ + col) * groups_;
  }
  const uint8_t* group_zeros(int64_t i, int64_t col) const {
    if (zeros_ == nullptr) return nullptr;
    return reinterpret_cast<const uint8_t*>(zeros_.get()) + (i * padded_n_ + col) * groups_;
  }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  using Memory = std::unique_ptr<std::byte, Free>;

  struct Shape {
    int64_t matrices, k, n;
  };
  PackedWeights(const Shape& shape, WeightFormat format, int64_t width, int64_t panel_rows);
  // Returns int4 weights whose panels are not written yet.
  static PackedWeights Int4(const Context& context, const Shape& shape, int64_t group, bool zeros);
  static Memory Allocate(int64_t bytes);
  // Calls fill(panel, matrix, column, column in the panel) for every column.
  template <typename Fill>
  void FillInt4(const Context& context, const Fill& fill);
  void Keep(const KeptSource& source);

  Memory data_, scales_, corrections_, zeros_;
  WeightFormat format_ = WeightFormat::kF32;
  int64_t bits_ = 0;  // of a value
  int64_t matrices_ = 0, k_ = 0, n_ = 0, bytes_ = 0;
  int64_t padded_n_ = 0;    // n, up to the end of the last panel
  int64_t panel_rows_ = 0;  // k, plus rows of zeros if the panels need them
  int64_t group_ = 0, groups_ = 0;
  std::vector<int32_t> kept_channels_;
  std::vector<float> kept_;  // [kept channels, padded_n]
};

}  // namespace sluice::kernels
