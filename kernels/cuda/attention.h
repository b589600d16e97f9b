// Causal or bidirectional attention over paged KV with grouped queries, with exclusive self
// attention (kernels/cuda/xsa.h) in its epilogue.
//
// For a query row at position p and head h (KV head h / (q_heads / kv_heads)):
//   s_j = scale * q . k_j for the visible keys j (j <= p if causal, else the whole sequence but its
//     hidden positions (attention_tiles.h); with a window only the keys with |p - j| < window),
//     then c tanh(s_j / c) with a soft cap c, then the addition of bias[h, j - p]
//   y = sum_j exp(s_j - max s) v_j / sum_j exp(s_j - max s), or with a SiLU share c, as in HSTU,
//     y = sum_j c silu(s_j) v_j, then XSA with v = v_p
//
// The sums have one tree with cuts at absolute positions. The keys of a sequence are summed in
// segments of kSegmentTokens, each separately: an online softmax over chunks of ChunkKeys(head_dim)
// positions, ascending. The keys of a chunk have a common maximum m. With c = scale log2(e), or c =
// log2(e) if scores have another shape, the weight of a key is 2^fma(s, c, -(m c)). The weight of a
// row's only key is 1. The weights of a chunk are added in blocks of kWeightBlock keys, ascending.
// The segments' (max, sum, y) are merged in ascending order, and XSA comes last. So a row's bits
// depend only on its own sequence. They are the same in any batch, for any division of its tile,
// and whether its context was computed in the same step (prefill) or was in the cache (decode).
// Scores, sums and the epilogue are in float; the weights are rounded to T before they are
// multiplied with v.
//
// A value that is not finite affects only the rows that see it, and before XSA only its own feature
// of these rows.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/kv_cache.h"
#include "kernels/cuda/xsa.h"
#include "kernels/simt/stream.h"

namespace sluice::kernels::cuda {

// Returns the positions of a chunk, a multiple of kPageTokens that divides a segment.
SLUICE_HOST_DEVICE constexpr int32_t ChunkKeys(int32_t head_dim) {
  return head_dim <= 128 ? 128 : 64;
}
inline constexpr int32_t kWeightBlock = 16;
inline constexpr int32_t kBiasSlack = 16;
inline constexpr int32_t kMaxHeadDim = 256;  // the kernel is compiled for up to 64, 128 and 256
static_assert(kSegmentTokens % ChunkKeys(1) == 0 && kSegmentTokens % ChunkKeys(kMaxHeadDim) == 0);

template <typename T>  // float, BFloat16
struct AttentionArgs {
  const T* q;                          // [rows, q_heads, head_dim]
  const AttentionSequence* sequences;  // the sequences of the tile list
  const int32_t* rows;                 // row indices, see AttentionSequence
  const int32_t* pages;                // page ids; ceil(context / kPageTokens) for each sequence
  AttentionTiles tiles;
  KvLayer<T> kv;
  int32_t q_heads;       // a multiple of kv.kv_heads
  int64_t q_stride = 0;  // from row to row of q; 0 if q is contiguous
  float scale;
  bool causal;
  int32_t window = 0;           // 0 for all keys; pages that it hides from all rows are not read
  float soft_cap = 0;           // 0 for none
  const float* bias = nullptr;  // [q_heads, 2 * bias_positions + kBiasSlack], from j - p =
                                // -bias_positions on, or nullptr
  int32_t bias_positions = 0;   // above every position
  float silu_share = 0;         // 0 for the softmax
  Xsa xsa;
  float* scratch;  // AttentionScratchFloats
  T* out;          // [rows, q_heads, head_dim]; may be q if that is contiguous

  // Returns whether scores or visible keys need special treatment.
  bool shaped() const { return window != 0 || soft_cap != 0 || bias != nullptr || silu_share != 0; }
};

// Returns the floats of scratch memory for steps within `sizes`: the records of divided tiles, and
// the sums of merged segments that blocks have no registers for.
int64_t AttentionScratchFloats(const AttentionSizes& sizes, int32_t head_dim);

// Returns the shared memory, in bytes, that a block takes if it may take `limit`. If the result is
// more than `limit`, the kernel cannot run. The bits do not depend on the limit.
template <typename T>
int32_t AttentionSharedBytes(int32_t head_dim, int32_t limit);

// Requires AttentionSharedBytes within the stream's limit.
template <typename T>
void Attention(Stream& stream, const AttentionArgs<T>& args);

}  // namespace sluice::kernels::cuda
