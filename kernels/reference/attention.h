// Attention of one sequence and exclusive self attention, in double. kernels/cpu/attention.h has
// the formulas.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/xsa_form.h"

namespace sluice::kernels::reference {

// Tables of relative positions; see kernels/cpu/relative_positions.h.
struct RelativeTables {
  std::span<const double> keys, queries;  // [rows, heads, head_dim], or empty
  std::span<const int32_t> row_of;        // [2 * positions]
};

struct AttentionShape {
  int64_t q_heads;
  int64_t kv_heads;  // divides q_heads
  int64_t head_dim;
  int64_t window = 0;  // see kernels/cpu/attention.h, like the following
  double soft_cap = 0;
  std::span<const float> bias = {};  // [q_heads, 2 * bias_positions + 16], or empty
  int64_t bias_positions = 0;
  double silu_share = 0;
  RelativeTables relative = {};

  // Returns the keys that a row at `position` sees, [first, past).
  std::pair<int64_t, int64_t> Visible(int64_t position, int64_t context, bool causal) const;
  // Returns the number that the softmax, or SiLU, sees for a product times the scale.
  double ScoreOf(double product, int64_t head, int64_t distance) const;
  // Returns the sum of the products of a query and of its key, [head_dim] each, with the tables.
  double RelativeOf(std::span<const double> q, std::span<const double> k, int64_t head,
                    int64_t distance) const;
};

// Returns the attention output, in the shape of q. The rows of q are at positions first_position,
// first_position + 1, ...; k and v hold all positions from 0 on.
//   q: [rows, q_heads, head_dim]   k, v: [context, kv_heads, head_dim]
// A causal row sees the keys up to its own position, other rows see all keys, within the window.
std::vector<double> Attention(const AttentionShape& shape, std::span<const double> q,
                              std::span<const double> k, std::span<const double> v,
                              int64_t first_position, bool causal, double scale);

struct Xsa {
  XsaForm form;
  double eps;
  std::span<const double> gate;  // [q_heads], tanh already applied; empty means ones
};

struct XsaResult {
  std::vector<double> out;        // [rows, q_heads, head_dim]
  std::vector<double> cos_sim;    // [rows, q_heads]
  std::vector<double> proj_frac;  // [rows, q_heads]
};

// Removes from y the projection onto each row's own value.
//   y: [rows, q_heads, head_dim]; v: [rows, kv_heads, head_dim], the values of the rows themselves
// With kOff `out` is y, and the diagnostics are the same as with the other forms.
XsaResult ExcludeSelf(const AttentionShape& shape, const Xsa& xsa, std::span<const double> y,
                      std::span<const double> v);

}  // namespace sluice::kernels::reference
