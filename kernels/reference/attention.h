// Attention of one sequence and exclusive self attention, in double. Formulas in
// kernels/cpu/attention.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/xsa_form.h"

namespace sluice::kernels::reference {

struct AttentionShape {
  int64_t q_heads;
  int64_t kv_heads;  // divides q_heads
  int64_t head_dim;
};

// The rows of q are at positions first_position, first_position + 1, ..; k and v hold all positions
// from 0 on.
//   q: [rows, q_heads, head_dim]   k, v: [context, kv_heads, head_dim]
// Causal rows see the keys up to their own position, others see all. Returns the shape of q.
std::vector<double> Attention(const AttentionShape& shape, std::span<const double> q,
                              std::span<const double> k, std::span<const double> v,
                              int64_t first_position, bool causal, double scale);

struct Xsa {
  XsaForm form;
  double eps;
  std::span<const double> gate;  // [q_heads], already tanh'ed; empty: ones
};

struct XsaResult {
  std::vector<double> out;        // [rows, q_heads, head_dim]
  std::vector<double> cos_sim;    // [rows, q_heads]
  std::vector<double> proj_frac;  // [rows, q_heads]
};

// y: [rows, q_heads, head_dim]; v: [rows, kv_heads, head_dim], the values of the rows themselves.
// With kOff `out` is y and the diagnostics are those that the other forms give.
XsaResult ExcludeSelf(const AttentionShape& shape, const Xsa& xsa, std::span<const double> y,
                      std::span<const double> v);

}  // namespace sluice::kernels::reference
