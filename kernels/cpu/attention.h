// Causal or bidirectional attention with grouped queries and an epilogue of XSA. Keys and values
// are in KV pages, or in the step's own rows if every sequence is whole.
//
// For a query row at position p and head h (KV head h / (q_heads / kv_heads)):
//   s_j = scale * q . k_j for the visible keys j (j <= p if causal, else the whole sequence but its
//     hidden positions; with a window only the keys with |p - j| < window), then c tanh(s_j / c)
//     with a soft cap c, then the addition of bias[h, j - p], and of
//     scale * (q . K[r] + k_j . Q[r]) with relative positions (kernels/cpu/relative_positions.h)
//   y = sum_j exp(s_j - max s) v_j / sum_j exp(s_j - max s), or with a SiLU share c, as in HSTU
//     (arXiv 2402.17152), y = sum_j c silu(s_j) v_j
//   XSA (exclusive self attention, arXiv 2603.09078), v = v_p:
//     form kNorm:    v^ = v / max(|v|, eps),  z = y - g (y . v^) v^
//     form kSquared:                          z = y - g (y . v) v / max(|v|^2, eps)
//     g = gate[h] (tanh already applied), 1 without a gate
//   diagnostics, of the ungated y before XSA and independent of the form:
//     cos_sim = |y . v| / max(|v|, 1e-6),  proj_frac = cos_sim / max(|y|, 1e-6)
//
// The keys of a sequence are summed in segments of kSegmentTokens at absolute positions, each
// ascending and relative to the segment's largest score. The segments' sums are merged in ascending
// order, and XSA comes last. So a row's result depends only on its own sequence: it is bitwise the
// same in any batch, in any order of the work (attention_schedule.h) and on any thread.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/attention_schedule.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/kv_cache.h"
#include "kernels/cpu/relative_positions.h"
#include "kernels/xsa_form.h"

namespace sluice::kernels {

struct AttentionArgs {
  const float* q;  // [rows, q_heads, head_dim]
  float* out;      // [rows, q_heads, head_dim]; may be q
  // [rows, kv_heads, head_dim], rotated; or nullptr if keys and values are in pages.
  const float* k = nullptr;
  const float* v = nullptr;
  int32_t q_heads;  // a multiple of kv.kv_heads
  float scale;
  bool causal;
  int32_t window = 0;           // 0 for all keys
  float soft_cap = 0;           // 0 for none
  const float* bias = nullptr;  // [q_heads, 2 * bias_positions + kPageTokens], from j - p =
                                // -bias_positions on, or nullptr
  int32_t bias_positions = 0;   // above every position
  // Needs keys in the step's rows, one query head for each KV head, and silu_share 0. Its
  // positions are above every distance. The terms read the keys as f32, whatever kv.type is.
  const RelativePositions* relative = nullptr;
  float silu_share = 0;  // 0 for the softmax; needs xsa of kOff
  XsaForm xsa;
  float xsa_eps;  // >= 1e-18; a smaller one would be compared with a |v|^2 that fp32 has lost
  const float* xsa_gate;  // [q_heads] or nullptr
  float* cos_sim;         // [rows, q_heads] or nullptr; written only if xsa is on
  float* proj_frac;       // like cos_sim
  AttentionChoice choice = {};
};

// Returns the number of floats of scratch that Attention needs for sizes up to these.
int64_t AttentionScratchFloats(const AttentionChoice& choice, const AttentionSizes& sizes);

// Computes the attention of all sequences, whose contexts are at most `max_context`. `scratch` has
// AttentionScratchFloats of these sizes and the pool's threads. If keys and values are in the
// step's rows, `kv` gives the number of heads and the type in which they are read.
void Attention(const Context& context, const AttentionArgs& args, const KvLayer& kv,
               std::span<const AttentionSequence> sequences, int64_t max_context, float* scratch);

}  // namespace sluice::kernels
