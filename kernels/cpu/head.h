// The output head: products of rows with a [hidden, vocab] matrix. A row's sum of exponentials, the
// logit of a target and the most likely tokens are computed from blocks of columns of its logits
// while these are in the cache. All logits are written only for the rows that request them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/context.h"
#include "kernels/cpu/gemm.h"

namespace sluice::kernels {

inline constexpr int64_t kHeadRows = kGemmTileRows;  // most rows of a call
inline constexpr int64_t kMaxBest = 64;              // most best tokens of a row

struct HeadArgs {
  const float* x;                // [rows, k], row stride k
  const float* bias;             // [n] or nullptr
  float soft_cap;                // logits become cap * tanh(logits / cap); 0 means no cap
  QuantizedRows quantized = {};  // the rows in place of x, if the weights are int8
};

struct HeadRow {
  std::span<const int32_t> excluded = {};  // ascending, distinct; their logits are -inf
  // The output for all logits, [n]. If it is set, only the logits are computed for the row.
  float* logits = nullptr;
  int32_t target = -1;  // in [0, n), or -1 for none
  int64_t best = 0;     // number of most likely tokens to return, at most kMaxBest and n
};

struct HeadResult {
  double log_sum;  // the LogSumExp of all logits, bit for bit
  float target_logit;
  // [best], in descending order; equal logits by ascending id, NaN last. The sign of 0 is lost.
  // They point into the scratch and are valid until the next call.
  const int32_t* best_ids;
  const float* best_logits;
};

// Returns the bytes of scratch, aligned to cache lines, for a matrix of n columns.
int64_t HeadScratch(int64_t n, int threads);

// Computes the head for one matrix. The `results` of rows that request all logits stay unwritten. A
// row's results have the same bits for any other rows in the call. They equal the results of Gemm,
// SoftCap, LogSumExp and TopK on its logits.
void Head(const Context& context, const PackedWeights& weights, const HeadArgs& args,
          std::span<const HeadRow> rows, std::byte* scratch, HeadResult* results);

}  // namespace sluice::kernels
