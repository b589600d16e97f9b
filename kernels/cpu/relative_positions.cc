#include "kernels/cpu/relative_positions.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/size_of.h"
#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {
namespace {

// Packs a table [rows, heads, head_dim] as a matrix [head_dim -> rows] for each head.
PackedWeights PackTable(const Context& context, int32_t heads, int32_t head_dim,
                        std::span<const float> table) {
  if (table.empty()) return {};
  const int64_t width = int64_t{heads} * head_dim, rows = std::ssize(table) / width;
  std::vector<float> by_head(table.size());
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(&table[r * width + h * head_dim], head_dim, &by_head[(h * rows + r) * head_dim]);
    }
  }
  return PackedWeights::Pack(context, {.data = by_head.data(),
                                       .dtype = DType::kF32,
                                       .matrices = heads,
                                       .k = head_dim,
                                       .n = rows,
                                       .transposed = true});
}

}  // namespace

RelativePositions::RelativePositions(const Context& context, int32_t heads, int32_t head_dim,
                                     std::span<const float> keys, std::span<const float> queries,
                                     std::vector<int32_t> row_of)
    : keys_(PackTable(context, heads, head_dim, keys)),
      queries_(PackTable(context, heads, head_dim, queries)),
      row_of_(std::move(row_of)),
      rows_(std::max(keys_.n(), queries_.n())) {
  SLUICE_CHECK(keys.empty() || queries.empty() || keys_.n() == queries_.n());
  SLUICE_CHECK(std::ranges::is_sorted(row_of_, std::greater<>()));
  SLUICE_CHECK(row_of_.empty() || (row_of_.back() >= 0 && row_of_.front() < rows_));
}

int64_t RelativePositions::bytes() const {
  return keys_.bytes() + queries_.bytes() + std::ssize(row_of_) * kSizeOf<int32_t>;
}

int64_t MultiplyByTable(Profile profile, const PackedWeights& table, int32_t head, TableRows range,
                        const StepRows& rows, float* out, int64_t out_stride) {
  const simd::Table& kernels = simd::TableFor(profile);
  const int64_t first = range.first / kernels.panel_cols * kernels.panel_cols;
  SLUICE_CHECK(range.past <= table.n() && range.past - first <= out_stride);
  for (int64_t begin = 0, past; begin < rows.count; begin = past) {
    past = begin + 1;
    while (past < rows.count && rows.rows[past] == rows.rows[past - 1] + 1) ++past;
    kernels.gemm_f32({.x = rows.x + rows.rows[begin] * rows.stride,
                      .ldx = rows.stride,
                      .rows = past - begin,
                      .panels = table.panels(head, first),
                      .k = table.k(),
                      .cols = range.past - first,
                      .bias = nullptr,
                      .out = out + begin * out_stride,
                      .ldo = out_stride,
                      .accumulate = false});
  }
  return first;
}

}  // namespace sluice::kernels
