// The head: products of rows with a [hidden, vocab] matrix. What is wanted of a row's logits, its
// sum of exponents, a target's logit and the most likely tokens, is taken block by block of columns
// while they are in the cache; all logits are written of those rows only that ask for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/context.h"
#include "kernels/cpu/gemm.h"

namespace sluice::kernels {

inline constexpr int64_t kHeadRows = kGemmTileRows;  // most rows of a call
inline constexpr int64_t kMostBest = 64;             // and best tokens of a row

struct HeadArgs {
  const float* x;     // [rows, k], row stride k
  const float* bias;  // [n] or nullptr
  float soft_cap;     // logits become cap * tanh(logits / cap); 0: they do not
};

struct HeadRow {
  std::span<const int32_t> excluded = {};  // ascending, distinct; their logits are -inf
  // Where all logits go, [n]: these are then all that is computed of the row.
  float* logits = nullptr;
  int32_t target = -1;  // in [0, n), or -1: none
  int64_t best = 0;     // how many of the most likely tokens, at most kMostBest and n
};

struct HeadResult {
  double log_sum;  // as LogSumExp's of all logits, bit for bit
  float target_logit;
  // [best], in descending order, of equal logits the lower id first; NaN last; 0 has lost its sign.
  // In the scratch, until the next call.
  const int32_t* best_ids;
  const float* best_logits;
};

// Bytes, aligned to cache lines, for a matrix of n columns.
int64_t HeadScratch(int64_t n, int threads);

// One matrix. `results` of rows that ask for all logits stay unwritten. A row's results have the
// same bits whatever rows it comes with, and are those of its logits as Gemm, SoftCap, LogSumExp
// and TopK have them.
void Head(const Context& context, const PackedWeights& weights, const HeadArgs& args,
          std::span<const HeadRow> rows, std::byte* scratch, HeadResult* results);

}  // namespace sluice::kernels
