#include "kernels/reference/attention.h"

#include <algorithm>
#include <cmath>

namespace sluice::kernels::reference {
namespace {

// Adds up in four sums that do not depend on each other.
double Dot(std::span<const double> a, std::span<const double> b) {
  double sums[4] = {};
  size_t i = 0;
  for (; i + 4 <= a.size(); i += 4) {
    for (size_t s = 0; s < 4; ++s) sums[s] += a[i + s] * b[i + s];
  }
  for (; i < a.size(); ++i) sums[0] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Returns head `head` of row `row` of a [rows, heads, head_dim] tensor.
std::span<const double> Head(std::span<const double> x, int64_t heads, int64_t head_dim,
                             int64_t row, int64_t head) {
  return x.subspan((row * heads + head) * head_dim, head_dim);
}

}  // namespace

std::pair<int64_t, int64_t> AttentionShape::Visible(int64_t position, int64_t context,
                                                    bool causal) const {
  int64_t first = 0, past = causal ? position + 1 : context;
  if (window > 0) {
    first = std::max<int64_t>(0, position - window + 1);
    past = std::min(past, position + window);
  }
  return {first, past};
}

double AttentionShape::ScoreOf(double product, int64_t head, int64_t distance) const {
  const double score = soft_cap == 0 ? product : soft_cap * std::tanh(product / soft_cap);
  if (bias.empty()) return score;
  return score + bias[head * (2 * bias_positions + 16) + bias_positions + distance];
}

double AttentionShape::RelativeOf(std::span<const double> q, std::span<const double> k,
                                  int64_t head, int64_t distance) const {
  if (relative.row_of.empty()) return 0;
  const int64_t row = relative.row_of[std::ssize(relative.row_of) / 2 + distance];
  double sum = 0;
  if (!relative.keys.empty()) sum += Dot(q, Head(relative.keys, q_heads, head_dim, row, head));
  if (!relative.queries.empty())
    sum += Dot(k, Head(relative.queries, q_heads, head_dim, row, head));
  return sum;
}

std::vector<double> Attention(const AttentionShape& shape, std::span<const double> q,
                              std::span<const double> k, std::span<const double> v,
                              int64_t first_position, bool causal, double scale) {
  const int64_t head_dim = shape.head_dim, group = shape.q_heads / shape.kv_heads;
  const int64_t rows = std::ssize(q) / (shape.q_heads * head_dim);
  const int64_t context = std::ssize(k) / (shape.kv_heads * head_dim);
  std::vector<double> out(q.size(), 0.0);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t position = first_position + r;
    const auto [first, past] = shape.Visible(position, context, causal);
    for (int64_t h = 0; h < shape.q_heads; ++h) {
      std::vector<double> p(static_cast<size_t>(past - first));
      for (int64_t j = first; j < past; ++j) {
        const std::span<const double> query = Head(q, shape.q_heads, head_dim, r, h);
        const std::span<const double> key = Head(k, shape.kv_heads, head_dim, j, h / group);
        p[j - first] = shape.ScoreOf(scale * Dot(query, key), h, j - position) +
                       scale * shape.RelativeOf(query, key, h, j - position);
      }
      double sum = 1;
      if (shape.silu_share > 0) {
        for (double& s : p) s *= shape.silu_share / (1 + std::exp(-s));
      } else {
        const double largest = *std::max_element(p.begin(), p.end());
        sum = 0;
        for (double& s : p) sum += s = std::exp(s - largest);
      }
      for (int64_t j = first; j < past; ++j) {
        const std::span<const double> value = Head(v, shape.kv_heads, head_dim, j, h / group);
        const double share = p[j - first] / sum;
        double* const to = &out[(r * shape.q_heads + h) * head_dim];
        for (int64_t d = 0; d < head_dim; ++d) to[d] += share * value[d];
      }
    }
  }
  return out;
}

XsaResult ExcludeSelf(const AttentionShape& shape, const Xsa& xsa, std::span<const double> y,
                      std::span<const double> v) {
  constexpr double kDiagnosticEps = 1e-6;
  const int64_t head_dim = shape.head_dim, group = shape.q_heads / shape.kv_heads;
  const int64_t rows = std::ssize(y) / (shape.q_heads * head_dim);
  XsaResult result = {.out = {y.begin(), y.end()}, .cos_sim = {}, .proj_frac = {}};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t h = 0; h < shape.q_heads; ++h) {
      const std::span<const double> head = Head(y, shape.q_heads, head_dim, r, h);
      const std::span<const double> own = Head(v, shape.kv_heads, head_dim, r, h / group);
      const double dot = Dot(head, own), square = Dot(own, own);
      const double cos_sim = std::abs(dot) / std::max(std::sqrt(square), kDiagnosticEps);
      result.cos_sim.push_back(cos_sim);
      result.proj_frac.push_back(cos_sim / std::max(std::sqrt(Dot(head, head)), kDiagnosticEps));
      if (xsa.form == XsaForm::kOff) continue;
      const double least = xsa.form == XsaForm::kNorm ? xsa.eps * xsa.eps : xsa.eps;
      const double divisor = std::max(square, least);
      const double gate = xsa.gate.empty() ? 1.0 : xsa.gate[h];
      for (int64_t d = 0; d < head_dim; ++d) {
        result.out[(r * shape.q_heads + h) * head_dim + d] -= gate * dot / divisor * own[d];
      }
    }
  }
  return result;
}

}  // namespace sluice::kernels::reference
