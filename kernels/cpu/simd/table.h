// The inner kernels, in one table per numerics profile. A build has the tables of its architecture.
//
// All of them run on the calling thread, check nothing and include only C headers (see vec.h). The
// ops in kernels/cpu/*.cc divide the work and call these kernels.
#pragma once

#include <stdint.h>

#include "kernels/activation_kind.h"
#include "kernels/cpu/kv_cache.h"
#include "kernels/xsa_form.h"

namespace sluice::kernels::simd {

// Consecutive panels of a packed matrix times some rows:
//   out[r, c] = sum_k x[r, k] w[k, c], one running sum over k ascending, (+ bias[c]) (+ out[r, c])
struct GemmBlock {
  const float* x;  // [rows, k], row stride ldx
  int64_t ldx;
  int64_t rows;
  const void* panels;  // [ceil(cols / panel_cols), rows of k, panel_cols], see Table
  int64_t k;
  int64_t cols;
  const float* bias;  // [cols] or nullptr
  float* out;         // [rows, cols], row stride ldo
  int64_t ldo;
  bool accumulate;
};

// Products of rows with consecutive rows of a table: [rows, stride], where column 0 is the table's
// row `first`.
struct TableProducts {
  const float* values;  // nullptr if there is no table
  int64_t stride;
  int64_t first;
};

// The terms of disentangled attention; see kernels/cpu/relative_positions.h.
struct RelativeTerms {
  const int32_t* row_of;  // the table's row for a key d positions after its query; or nullptr
  TableProducts queries;  // of the block's rows; the block has one query head
  TableProducts keys;     // of the sequence's keys, from position 0 on
};

// Consecutive query rows of one sequence and all query heads of one KV head.
struct AttentionBlock {
  const float* q;       // first row of the tensor, at this KV head's first query head
  float* out;           // like q; may be q
  int64_t row_stride;   // floats between the rows of q and of out
  int32_t heads;        // query heads
  const int32_t* rows;  // [count]
  int32_t count;
  int32_t first_position;  // of rows[0]
  int32_t context;         // visible keys of a bidirectional row; 0 means causal
  float scale;
  int32_t window;     // 0 for all keys, see AttentionArgs
  float soft_cap;     // 0 for none
  const float* bias;  // [heads, bias_stride()] or nullptr
  int32_t bias_positions;
  float silu_share;  // 0 for the softmax, see AttentionArgs

  int64_t bias_stride() const { return 2 * int64_t{bias_positions} + kPageTokens; }

  RelativeTerms relative;
  const KvLayer* kv;
  int32_t kv_head;
  const int32_t* pages;  // of the sequence, from position 0 on

  XsaForm xsa;
  float xsa_eps;
  const float* xsa_gate;  // [heads] or nullptr
  float* cos_sim;         // first row of the tensor, at the first query head; or nullptr
  float* proj_frac;       // like cos_sim
  int64_t diagnostics_stride;

  // The segments of keys to read, [first, past), and the pages up to their end.
  int64_t first_segment;
  int64_t past_segment;
  int64_t fetch_pages;
  bool two_pass;  // whether all of a tile's scores are computed before its sums

  // Scratch. A record has a query's sums over a segment, or over all segments so far: head_dim sums
  // of weighted values, then the numbers at the kRecord places.
  int64_t record_stride;
  float* scores;  // [kAttentionTile, score_stride]
  // A multiple of kPageTokens: at least kSegmentTokens, or the context with two passes.
  int64_t score_stride;
  float* queries;       // [ceil(head_dim / kQueryRun), kAttentionTile, kQueryRun]
  float* segment_sums;  // [kAttentionTile] records
  float* running;       // [count * heads] records
  float* own_values;    // [kAttentionRows, head_dim]; not used with pages of f32
  // [segments of the sequence, count * heads] records of a split sequence, or nullptr.
  float* parts;
};

// The places of a record after its head_dim sums: the largest score, the sum of the weights
// relative to it, and with causal XSA the weight of the row's own value, which is not in the sums.
// When records are folded, the sum and the own weight are added. With XSA, the record of the part
// that reads the row's own position also has the norm of the own value. The part computes it once
// for all query heads.
inline constexpr int kRecordMax = 0;
inline constexpr int kRecordSum = 1;
inline constexpr int kRecordOwn = 2;
inline constexpr int kRecordNorm = 3;
inline constexpr int kRecordTail = 4;

// The most queries that read a KV page together, over all profiles.
inline constexpr int kAttentionTile = 8;

// The number of adjacent features of a query in a tile's copy of its queries. One address register
// is enough for the copy.
inline constexpr int kQueryRun = 64;

// The most rows of an AttentionBlock.
inline constexpr int kAttentionRows = 32;

// The rows in a step of panels of pairs, and the limits of a block: rows, columns, and rows times
// k. The last limit does not apply to at most kPairsFewRows rows.
inline constexpr int64_t kPairsDepth = 32;
inline constexpr int64_t kPairsRows = 128;
inline constexpr int64_t kPairsFewRows = 32;
inline constexpr int64_t kPairsCols = 1024;
inline constexpr int64_t kPairsArea = int64_t{1} << 17;

// Attention over pages of one type.
struct AttentionKernels {
  // Computes the block's outputs, or the records of its parts if it has parts.
  void (*attend)(const AttentionBlock& block);
  // Computes the output of query `index`, in the order of rows, then heads, from a block's parts.
  void (*fold)(const AttentionBlock& block, int64_t index);
};

struct Table {
  int32_t panel_cols;  // columns of a GEMM panel
  int32_t tile_rows;   // rows that a GEMM tile computes at once

  // Panels of f32 hold a row's columns in order. Panels of bf16 interleave the halves of a row:
  // column c < panel_cols / 2 comes before column c + panel_cols / 2. The sums are f32 in both and
  // agree bitwise. If `pairs` is set, x is rounded to bf16 instead and panels of bf16 hold pairs:
  // rows 2 i and 2 i + 1 of a column are adjacent, and rows of zeros fill k up to a multiple of
  // kPairsDepth.
  void (*gemm_f32)(const GemmBlock& block);
  void (*gemm_bf16)(const GemmBlock& block);
  bool pairs;
  AttentionKernels attention;  // over pages of f32
  // Normalises rows [rows, dim]; out may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t rows, int64_t dim,
                   float* out);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps,
                     int64_t rows, int64_t dim, float* out);
  // By Activation: out = f(in) * up. up may be nullptr; out may be in or up.
  void (*activate[kActivations])(const float* in, const float* up, int64_t n, float* out);
  // All inputs but a may be nullptr (b then counts as zeros, the weights as ones). out may be a or
  // b.
  void (*mix)(const float* a, const float* a_weight, const float* b, const float* b_weight,
              int64_t n, float* out);
  void (*soft_cap)(float cap, int64_t n, float* x);
  // out may be x; cos and sin hold `half` values.
  void (*rotate)(const float* x, const float* cos, const float* sin, int64_t half, float* out);
  // Writes `count` keys of `dim` features, `stride` apart, to consecutive positions of a page of
  // f32. `page` is the first feature of the first one there.
  void (*store_keys)(const float* keys, int64_t stride, int64_t count, int64_t dim, float* page);

  // Returns -inf if all values are NaN.
  float (*max)(const float* x, int64_t n);
  // Sets w[i] = exp((x[i] - shift) / divisor), or 0 if that is below `floor`, and returns their
  // sum. w may be nullptr.
  float (*exp_sum)(const float* x, int64_t n, float shift, float divisor, float floor, float* w);
  // Appends the indices i of [begin, n) where x[i] <= bound is false, ascending, until fewer than
  // kLanes <= 16 more would fit into `room`. Returns the index to continue at; *found is the count.
  int64_t (*scan)(const float* x, int64_t begin, int64_t n, float bound, int32_t* indices,
                  int64_t room, int64_t* found);
};

inline constexpr int64_t kScanSlack = 16;  // the lanes of the widest vector

extern const Table kPortable;
extern const Table kAvx2;
extern const Table kAvx512;
extern const Table kAvx512Bf16;
extern const Table kAmx;
extern const Table kArm64;

// The kernels over pages of bf16 and int8.
extern const AttentionKernels kBF16PagesPortable;
extern const AttentionKernels kBF16PagesAvx2;
extern const AttentionKernels kBF16PagesAvx512;
extern const AttentionKernels kBF16PagesArm64;
extern const AttentionKernels kInt8PagesPortable;
extern const AttentionKernels kInt8PagesAvx2;
extern const AttentionKernels kInt8PagesAvx512;
extern const AttentionKernels kInt8PagesArm64;

}  // namespace sluice::kernels::simd
