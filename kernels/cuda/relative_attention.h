// Disentangled attention in both directions over paged KV (DeBERTa, arXiv 2006.03654).
//
// For a query row at position p and head h:
//   s_j = scale * (q . k_j + q . K[r] + k_j . Q[r]) for the visible keys j, r = row_of[j - p]
//   y = sum_j exp(s_j - max s) v_j / sum_j exp(s_j - max s)
// where K and Q are the head's tables, with a row for each range of distances. Either may be
// absent. A query sees the whole sequence but its hidden positions (attention_tiles.h).
//
// A warp computes a query: an online softmax over chunks of 32 keys in ascending order, a key for
// each lane. So a row's bits depend only on its own sequence.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

inline constexpr int32_t kMaxRelativeHeadDim = 256;

struct RelativeTable {
  const float* keys = nullptr;      // [rows, q_heads, head_dim], or nullptr
  const float* queries = nullptr;   // the same
  const int32_t* row_of = nullptr;  // [2 * positions], from j - p = -positions on
  int32_t positions = 0;            // above every position
};

template <typename T>  // float, BFloat16
struct RelativeAttentionArgs {
  AttentionArgs<T> op;  // its shape of scores, XSA and scratch are not used
  RelativeTable table;
};

// Requires op.kv.head_dim <= kMaxRelativeHeadDim, and a KV head for each query head.
template <typename T>
void RelativeAttention(Stream& stream, const RelativeAttentionArgs<T>& args);

}  // namespace sluice::kernels::cuda
