// Checks that the bits of a row do not depend on the other rows of its batch.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <vector>

namespace sluice {

// Returns the results [rows.size(), width] of an op for these rows of a fixed input, computed as
// one batch in this order.
using RowsOp = std::function<std::vector<float>(std::span<const int32_t> rows)>;

struct InvarianceOptions {
  int32_t rows = 70;       // rows of the fixed input
  int32_t max_batch = 70;  // largest batch; rows are drawn with repetition
  uint64_t seed = 1;
};

// Succeeds if every row has the same bits in random batches of every size as in a batch of one row.
// A failure reports the batch size, the row's place in the batch and the first different column.
inline testing::AssertionResult RowsAreInvariant(const RowsOp& op,
                                                 const InvarianceOptions& options = {}) {
  std::vector<std::vector<float>> alone;
  for (int32_t row = 0; row < options.rows; ++row) alone.push_back(op({&row, 1}));
  const size_t width = alone[0].size();

  std::mt19937_64 random(options.seed);
  for (int32_t batch = 1; batch <= options.max_batch; ++batch) {
    std::vector<int32_t> rows(batch);
    for (int32_t& row : rows) row = static_cast<int32_t>(random() % options.rows);
    const std::vector<float> together = op(rows);
    if (together.size() != rows.size() * width) {
      return testing::AssertionFailure() << "a batch of " << batch << " rows gave "
                                         << together.size() << " values of width " << width;
    }
    for (size_t i = 0; i < together.size(); ++i) {
      const float& expected = alone[rows[i / width]][i % width];
      if (std::memcmp(&expected, &together[i], sizeof(float)) == 0) continue;
      return testing::AssertionFailure()
             << "row " << rows[i / width] << " at place " << i / width << " of a batch of " << batch
             << " differs in column " << i % width << ": " << together[i] << ", alone " << expected
             << " (seed " << options.seed << ")";
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace sluice
