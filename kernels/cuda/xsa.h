// Exclusive self attention (arXiv 2603.09078) of attention's output y [rows, q_heads, head_dim],
// where v is the value of the row's own position and of KV head h / (q_heads / kv_heads):
//   form kNorm:    z = y - g (y . v) v / max(|v|, eps)^2
//   form kSquared: z = y - g (y . v) v / max(|v|^2, eps)
//   g = gate[h] (tanh already applied), 1 without a gate
// Without a gate, a row with y = v becomes exactly zero, unless eps bounds the divisor. In causal
// attention y = v at position 0.
// Diagnostics, of y and independent of the form:
//   cos_sim = |y . v| / max(|v|, 1e-6),  proj_frac = cos_sim / max(|y|, 1e-6)
//
// Attention (kernels/cuda/attention.h) does this in its epilogue, on y in float. ExcludeSelf is the
// standalone form, in one pass, for a y from another source. It reads v and computes |v|^2 once per
// row and KV head.
#pragma once

#include <cstdint>

#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/rows.h"
#include "kernels/simt/stream.h"
#include "kernels/xsa_form.h"

namespace sluice::kernels::cuda {

struct Xsa {
  XsaForm form = XsaForm::kOff;
  float eps = 1e-6f;  // >= 1e-18; a smaller one would be compared with a |v|^2 that fp32 has lost
  const float* gate = nullptr;  // [q_heads] or nullptr
  float* cos_sim = nullptr;     // [rows, q_heads] or nullptr; unused if form is kOff
  float* proj_frac = nullptr;   // like cos_sim
  // On the device: whether a step needs diagnostics; otherwise they are not computed. nullptr if
  // every step needs them.
  const int32_t* wanted = nullptr;
};

template <typename T>  // float, BFloat16
struct ExcludeSelfArgs {
  const T* y;       // [rows, q_heads, head_dim]
  const T* v;       // [rows, kv_heads, head_dim]
  int32_t q_heads;  // a multiple of kv_heads
  int32_t kv_heads;
  int32_t head_dim;  // <= 256
  Xsa xsa;           // form is not kOff
  LiveRows rows;
  T* out;  // [rows, q_heads, head_dim]; may be y
};

template <typename T>
void ExcludeSelf(Stream& stream, const ExcludeSelfArgs<T>& args);

}  // namespace sluice::kernels::cuda
