// Weights in the order in which the kernels of a profile read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/cpu/context.h"
#include "kernels/dtype.h"

namespace sluice::kernels {

// The source of a weight matrix: `matrices` consecutive matrices, each either [k, n] row-major
// ("in, out": position-wise tensors) or [n, k] ("out, in": Linear layers).
struct WeightSource {
  const void* data;  // not aligned; only read during packing
  DType dtype;
  int64_t matrices;
  int64_t k;
  int64_t n;
  bool transposed;                // true: stored [n, k]
  const float* scales = nullptr;  // [matrices, n], of columns that are stored as kI8
};

// Immutable weights in panels, the profile's tile order. Move-only.
class PackedWeights {
 public:
  PackedWeights() = default;
  // Keeps bf16 if the source is bf16, and widens to f32 otherwise. Under the f32 profiles both give
  // bitwise the same results. Requires another dtype than kI8.
  static PackedWeights Pack(const Context& context, const WeightSource& source);
  // Quantises to int8 by columns, that is by output channels: a value is round(w * (127 / max|w|)),
  // ties to even, and the column's scale is max|w| / 127. A column with a value that is not finite
  // has a scale of NaN. What is stored as kI8 is kept with its scales.
  static PackedWeights PackInt8(const Context& context, const WeightSource& source);

  int64_t matrices() const { return matrices_; }
  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  int64_t bytes() const { return bytes_; }
  DType dtype() const { return dtype_; }  // as packed: kF32, kBF16 or kI8
  // Returns matrix `i` from column `col` on, which must be the first column of a panel. The layout
  // is private to the kernels of `profile`.
  const void* panels(int64_t i, int64_t col) const {
    return data_.get() + (i * padded_n_ + col) * panel_rows_ * DTypeBytes(dtype_);
  }
  // Returns what int8 panels have for each column, from column `col` of matrix `i` on, up to the
  // end of the last panel: scales, and corrections as simd/int8.h says.
  const float* scales(int64_t i, int64_t col) const {
    return reinterpret_cast<const float*>(scales_.get()) + i * padded_n_ + col;
  }
  const int32_t* corrections(int64_t i, int64_t col) const {
    return reinterpret_cast<const int32_t*>(corrections_.get()) + i * padded_n_ + col;
  }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  using Memory = std::unique_ptr<std::byte, Free>;

  PackedWeights(const WeightSource& source, DType dtype, int64_t width, int64_t panel_rows);
  static Memory Allocate(int64_t bytes);

  Memory data_, scales_, corrections_;
  DType dtype_ = DType::kF32;
  int64_t matrices_ = 0, k_ = 0, n_ = 0, bytes_ = 0;
  int64_t padded_n_ = 0;    // n, up to the end of the last panel
  int64_t panel_rows_ = 0;  // k, plus rows of zeros where the panels need them
};

}  // namespace sluice::kernels
