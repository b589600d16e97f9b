// Rows of activations in int8. Each row has its own scale, so that no row depends on its batch.
//
//   value = round(x * (127 / max|x|)), ties to even; scale = max|x| / 127
//
// where x is each value of the row, times its factor if there are factors. A factor of zero
// excludes a channel that is multiplied in floats.
//
// A row whose largest magnitude is below 2^-100 counts as zeros. If a value is not finite, the
// scale of its row is NaN. Values and scales have the same bits under all profiles. The encoding of
// values in memory is known only to the profile's kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/context.h"

namespace sluice::kernels {

// A view of memory for rows of k values, or of nothing. Products with int4 weights need rows with
// the sums of each kSummed of their values. Products with int8 weights need rows without sums.
class QuantizedRows {
 public:
  static constexpr int64_t kSummed = 32;

  QuantizedRows() = default;
  // Requires Bytes(profile, rows, k, sums) bytes at `memory`, aligned to cache lines.
  QuantizedRows(Profile profile, int64_t rows, int64_t k, bool sums, std::byte* memory);
  static int64_t Bytes(Profile profile, int64_t rows, int64_t k, bool sums);

  // Multiplies all values by `factors`, [k], before they are quantised into these rows; nullptr
  // means no factors. They are not owned.
  void MultiplyBy(const float* factors) { factors_ = factors; }

  bool present() const { return k_ > 0; }
  int64_t k() const { return k_; }
  int64_t stride() const { return stride_; }  // bytes
  std::byte* row(int64_t r) const { return values_ + r * stride_; }
  float* scales() const { return scales_; }
  const float* factors() const { return factors_; }
  int64_t sums_stride() const { return sums_stride_; }
  int32_t* sums(int64_t r) const {  // nullptr if the rows have none
    return sums_ == nullptr ? nullptr : sums_ + r * sums_stride_;
  }

 private:
  int64_t k_ = 0, stride_ = 0, sums_stride_ = 0;
  const float* factors_ = nullptr;
  float* scales_ = nullptr;      // [rows]
  int32_t* sums_ = nullptr;      // [rows, sums_stride]
  std::byte* values_ = nullptr;  // [rows, stride]
};

// Quantises x, [rows, k] with the row stride ldx.
void QuantizeRows(const Context& context, const float* x, int64_t ldx, int64_t rows,
                  const QuantizedRows& out);
// Quantises one row on the calling thread.
void QuantizeRow(Profile profile, const float* x, int64_t row, const QuantizedRows& out);

}  // namespace sluice::kernels
