#include "kernels/cpu/quantized_rows.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "base/size_of.h"
#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kRowGap = 64;  // a cache line

// Returns the bytes from one row to the next. The cache line between two rows puts the same column
// of several rows into different cache sets.
int64_t StrideOf(const simd::Int8Table& table, int64_t k, bool sums) {
  const int64_t padded = CeilDiv(k, simd::kInt8Depth) * simd::kInt8Depth;
  return padded * (sums ? table.value_bytes_int4 : table.value_bytes) + kRowGap;
}

int64_t ScaleBytes(int64_t rows) { return CeilDiv(rows * kSizeOf<float>, kRowGap) * kRowGap; }

// Returns the number of sums of a row of k values: one before each kSummed values, including the
// padding, and one over all values.
int64_t SumsOf(int64_t k) {
  return CeilDiv(k, simd::kInt8Depth) * (simd::kInt8Depth / QuantizedRows::kSummed) + 1;
}
static_assert(simd::kInt8Depth % QuantizedRows::kSummed == 0);

int64_t SumBytes(int64_t rows, int64_t k) {
  return CeilDiv(rows * SumsOf(k) * kSizeOf<int32_t>, kRowGap) * kRowGap;
}

}  // namespace

QuantizedRows::QuantizedRows(Profile profile, int64_t rows, int64_t k, bool sums, std::byte* memory)
    : k_(k),
      stride_(StrideOf(simd::Int8TableFor(profile), k, sums)),
      scales_(reinterpret_cast<float*>(memory)),
      values_(memory + ScaleBytes(rows)) {
  if (!sums) return;
  sums_stride_ = SumsOf(k);
  sums_ = reinterpret_cast<int32_t*>(values_);
  values_ += SumBytes(rows, k);
}

int64_t QuantizedRows::Bytes(Profile profile, int64_t rows, int64_t k, bool sums) {
  const simd::Int8Table& table = simd::Int8TableFor(profile);
  return ScaleBytes(rows) + (sums ? SumBytes(rows, k) : 0) +
         (rows + table.slack_rows) * StrideOf(table, k, sums);
}

void QuantizeRow(Profile profile, const float* x, int64_t row, const QuantizedRows& out) {
  const simd::Int8Table& table = simd::Int8TableFor(profile);
  float* const scale = out.scales() + row;
  if (int32_t* const sums = out.sums(row)) {
    SLUICE_CHECK(out.factors() == nullptr);
    table.quantize_row_int4(x, out.k(), out.row(row), scale, sums);
  } else {
    table.quantize_row(x, out.factors(), out.k(), out.row(row), scale);
  }
}

void QuantizeRows(const Context& context, const float* x, int64_t ldx, int64_t rows,
                  const QuantizedRows& out) {
  constexpr int64_t kElementsPerTask = 16384;
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / out.k());
  context.pool->ParallelFor(rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) QuantizeRow(context.profile, x + r * ldx, r, out);
  });
}

}  // namespace sluice::kernels
