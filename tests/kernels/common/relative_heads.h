// Heads of disentangled attention with random tables.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/reference/attention.h"
#include "tests/kernels/common/values.h"

namespace sluice::kernels {

enum class Tables { kBoth, kKeys, kQueries };

// Returns the row of a key `distance` positions after its query: distances up to half the span have
// their own rows, and longer ones share rows by powers of `growth`. A span of 1 has no half, and
// each distance has its own row.
inline int32_t RowOf(int64_t distance, int64_t span, double growth) {
  const int64_t size = std::abs(distance), middle = span / 2;
  int64_t bucket = size;
  if (size > middle && middle > 0 && growth > 1) {
    const double ratio = static_cast<double>(size) / static_cast<double>(middle);
    bucket = middle + static_cast<int64_t>(std::ceil(std::log(ratio) / std::log(growth)));
  }
  const int64_t row = span + (distance > 0 ? -bucket : bucket);
  return static_cast<int32_t>(std::clamp<int64_t>(row, 0, 2 * span - 1));
}

// Heads with random tables. A growth of 1 gives each distance its own row.
struct RelativeHeads {
  std::vector<double> keys, queries;
  std::vector<int32_t> row_of;
  reference::AttentionShape shape;

  RelativeHeads(std::mt19937_64& random, int64_t heads, int64_t head_dim, int64_t span,
                double growth, int64_t positions, Tables tables = Tables::kBoth) {
    const int64_t values = 2 * span * heads * head_dim;
    if (tables != Tables::kQueries) keys = ToDouble(RandomValues<float>(random, values));
    if (tables != Tables::kKeys) queries = ToDouble(RandomValues<float>(random, values));
    for (int64_t d = -positions; d < positions; ++d) row_of.push_back(RowOf(d, span, growth));
    shape = {.q_heads = heads, .kv_heads = heads, .head_dim = head_dim};
    shape.relative = {keys, queries, row_of};
  }
  RelativeHeads(const RelativeHeads&) = delete;
  RelativeHeads& operator=(const RelativeHeads&) = delete;
};

}  // namespace sluice::kernels
