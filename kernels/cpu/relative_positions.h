// The tables of disentangled attention (DeBERTa, arXiv 2006.03654), packed for a profile.
//
// The score of a query at position p and a key at position j is
//   scale * (q . k + q . K[r] + k . Q[r]),  r = row_of(j - p)
// where K and Q are tables with a row for each range of distances. Either table may be absent.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/context.h"
#include "kernels/cpu/packed_weights.h"

namespace sluice::kernels {

// Consecutive rows of a table.
struct TableRows {
  int64_t first, past;
};

// Immutable after construction.
class RelativePositions {
 public:
  // The tables are [rows, heads, head_dim], or empty. `row_of` has 2 * positions elements: element
  // positions + d is the row for a key d positions after its query. Requires that its rows are in
  // the tables and do not increase with d.
  RelativePositions(const Context& context, int32_t heads, int32_t head_dim,
                    std::span<const float> keys, std::span<const float> queries,
                    std::vector<int32_t> row_of);

  int64_t positions() const { return std::ssize(row_of_) / 2; }
  // The number of rows of a table.
  int64_t rows() const { return rows_; }
  // Returns the table that queries or keys are multiplied with, a matrix of f32 for each head. It
  // has no matrices if the table is absent.
  const PackedWeights& keys() const { return keys_; }
  const PackedWeights& queries() const { return queries_; }
  // The number of tables.
  int64_t tables() const {
    return (keys_.matrices() > 0 ? 1 : 0) + (queries_.matrices() > 0 ? 1 : 0);
  }
  // Returns the row for a key d positions after its query at index d, which may be negative.
  const int32_t* row_of() const { return row_of_.data() + positions(); }
  // Returns the rows for the distances [first, last] of keys from their queries.
  TableRows RowsFor(int64_t first, int64_t last) const {
    return {row_of()[last], row_of()[first] + int64_t{1}};
  }
  int64_t bytes() const;

 private:
  PackedWeights keys_, queries_;
  std::vector<int32_t> row_of_;
  int64_t rows_;
};

// Some rows of a step: row i is at x + rows[i] * stride.
struct StepRows {
  const float* x;
  int64_t stride;
  const int32_t* rows;
  int64_t count;
};

// Multiplies rows with rows of a head's table, and perhaps with some rows before these: column 0 of
// `out`, [count, out_stride], is the product with the returned row of the table. Each product is
// one sum over ascending features, so it does not depend on the other rows. An out_stride of the
// table's rows is enough for every range.
int64_t MultiplyByTable(Profile profile, const PackedWeights& table, int32_t head, TableRows range,
                        const StepRows& rows, float* out, int64_t out_stride);

}  // namespace sluice::kernels
