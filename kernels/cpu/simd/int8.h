// Products in int8: rows of x that are quantised at run time, with weights that were quantised
// before, summed in int32. The sums are exact, and the few f32 operations around them are rounded
// one by one (the build never contracts them), so every unit gives the same bits.
#pragma once

#include <stdint.h>

namespace sluice::kernels::simd {

// Channels of x that are multiplied in f32. The quantised rows are zero in these channels.
struct KeptChannels {
  const float* x;  // [rows, ..], row stride ldx
  int64_t ldx;
  const int32_t* channels;  // [count], indices of the columns of x
  int64_t count;            // 0 if there are none
  const float* weights;     // [count, cols], row stride ldw; up to the end of the last panel
  int64_t ldw;
};

// Consecutive panels of a packed int8 matrix times some quantised rows:
//   out[r, c] = f32(sum_k x[r, k] w[k, c]) row_scales[r] scales[c] (+ kept) (+ bias[c])
//               (+ out[r, c])
// The products and sums of f32 are computed from left to right; `out` comes first in the last sum.
// Kept channels are added one by one: kept.x[r, channels[i]] kept.weights[i, c].
struct Int8Block {
  const void* x;  // [rows, stride bytes], as the unit's quantize_row writes them
  int64_t stride;
  const float* row_scales;  // [rows]
  int64_t rows;
  const void* panels;  // [ceil(cols / panel_cols), k, panel_cols, 4]
  int64_t k;           // in fours: the depth of a padded row over 4
  int64_t cols;
  // Each has values up to the end of the last panel.
  const float* scales;         // [cols]
  const int32_t* corrections;  // [cols], kInt8Offset times the sum of a column
  const float* bias;           // [cols] or nullptr
  float* out;                  // [rows, cols], row stride ldo
  int64_t ldo;
  bool accumulate;
  KeptChannels kept;
};

// Consecutive panels of a packed int4 matrix times some quantised rows, in groups of k:
//   out[r, c] = (sum over groups of f32(sum_k x[r, k] (code[k, c] - zero[g, c])) scales[g, c])
//               row_scales[r] (+ bias[c]) (+ out[r, c])
// The sum over a group is exact, in integers. The operations on f32 are computed from left to
// right, from +0 on.
struct Int4Block {
  const void* x;  // [rows, stride bytes], as the unit's quantize_row_int4 writes them
  int64_t stride;
  const float* row_scales;
  const int32_t* begins;  // [rows, begins_stride], as quantize_row_int4 writes them
  int64_t begins_stride;
  int64_t rows;
  // [ceil(cols / panel_cols), k / 8, panel_cols, 4] bytes. The low half of byte i has the code of
  // the i-th of eight rows, and the high half the code of the row four after it.
  const void* panels;
  int64_t k;      // the depth of a padded row
  int64_t group;  // a multiple of kInt4Summed
  int64_t cols;
  const float* scales;   // [ceil(cols / panel_cols), ceil(k / group), panel_cols]
  const uint8_t* zeros;  // like scales, or nullptr if all are 8
  const float* bias;     // [cols] or nullptr
  float* out;            // [rows, cols], row stride ldo
  int64_t ldo;
  bool accumulate;
};

inline constexpr int64_t kInt4Summed = 32;

// A quantised row has zeros up to a multiple of this.
inline constexpr int64_t kInt8Depth = 64;

// A row whose largest magnitude is below this counts as zeros, because its scale would be denormal.
inline constexpr float kInt8Least = 0x1p-100f;
inline constexpr float kInt8Most = 127.0f;

// The offset of the values of x for instructions that read them as unsigned.
inline constexpr int32_t kInt8Offset = 128;

struct Int8Table {
  int32_t panel_cols;
  int32_t tile_rows;
  // The bytes of a value that quantize_row and quantize_row_int4 write.
  int32_t value_bytes;
  int32_t value_bytes_int4;
  // A kernel may read this many rows after the last one. Their content does not matter.
  int32_t slack_rows;
  // Quantises a row of k values, each times its factor if `factors` is not nullptr:
  // value = round(x * (127 / max|x|)), ties to even, and *scale = max|x| / 127. If a value is not
  // finite, the scale is NaN.
  void (*quantize_row)(const float* x, const float* factors, int64_t k, void* out, float* scale);
  void (*gemm)(const Int8Block& block);
  // The same for products with int4 weights, which encode values in another way. Also writes
  // cumulative numbers: one for each kInt4Summed values, including the padding, and one more. The
  // difference of two is the initial value of the sum over the values between them, for a zero
  // point of 8.
  void (*quantize_row_int4)(const float* x, int64_t k, void* out, float* scale, int32_t* begins);
  void (*gemm_int4)(const Int4Block& block);
};

// A build has the tables of its architecture.
extern const Int8Table kInt8Portable;       // pairs in int16, by SSE2 or NEON
extern const Int8Table kInt8Avx2;           // pairs in int16, and in int4 pairs of bytes
extern const Int8Table kInt8DotsAvx2;       // fours by AVX-VNNI
extern const Int8Table kInt8Dots;           // fours by AVX-512 VNNI
extern const Int8Table kInt8Tiles;          // AMX, and VNNI for single rows
extern const Int8Table kInt8DotsArm64;      // fours by SDOT
extern const Int8Table kInt8MatricesArm64;  // SMMLA, and SDOT for single rows

}  // namespace sluice::kernels::simd
