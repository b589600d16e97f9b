// Sequences laid out as in a step: pages and rows in random order, and NaN in all unused places.
#pragma once

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/reference/attention.h"
#include "tests/kernels/cpu/op_test.h"

namespace sluice::kernels {

// The inputs of one sequence and the position at which its step begins.
struct SequenceCase {
  int32_t first_position, count;
  std::vector<float> q;     // [count, q_heads, head_dim]
  std::vector<float> k, v;  // [first_position + count, kv_heads, head_dim]
};

inline SequenceCase RandomSequence(std::mt19937_64& random, const reference::AttentionShape& shape,
                                   int32_t first_position, int32_t count, float scale = 1.0f) {
  const int64_t context = first_position + count, kv_width = shape.kv_heads * shape.head_dim;
  return {first_position, count,
          RandomFloats(random, count * shape.q_heads * shape.head_dim, scale),
          RandomFloats(random, context * kv_width), RandomFloats(random, context * kv_width)};
}

// The rows of each sequence's step, one after another.
struct AttentionOutputs {
  std::vector<std::vector<float>> out, cos_sim, proj_frac;
};

struct XsaCase {
  XsaForm form = XsaForm::kOff;
  float eps = 1e-6f;
  std::vector<float> gate;  // empty means no gate
  bool diagnostics = false;
};

inline AttentionOutputs RunAttention(const Context& context, const reference::AttentionShape& shape,
                                     std::span<const SequenceCase* const> cases, bool causal,
                                     const XsaCase& xsa, uint64_t seed) {
  std::mt19937_64 random(seed);
  const int64_t head_dim = shape.head_dim, q_width = shape.q_heads * head_dim;
  int64_t rows = 0, pages = 3, max_context = 0;  // some pages belong to no sequence
  for (const SequenceCase* c : cases) {
    rows += c->count;
    pages += (c->first_position + c->count + kPageTokens - 1) / kPageTokens;
    max_context = std::max<int64_t>(max_context, c->first_position + c->count);
  }
  const auto shuffled = [&](int64_t n) {
    std::vector<int32_t> order(n);
    for (int64_t i = 0; i < n; ++i) order[i] = static_cast<int32_t>(i);
    std::shuffle(order.begin(), order.end(), random);
    return order;
  };
  const std::vector<int32_t> row_order = shuffled(rows), page_order = shuffled(pages);
  const int64_t page_floats = shape.kv_heads * head_dim * kPageTokens;
  std::vector<float> k(pages * page_floats, kPoison), v(k), q(rows * q_width);
  std::vector<AttentionSequence> sequences;
  const int32_t* next_row = row_order.data();
  const int32_t* next_page = page_order.data();
  for (const SequenceCase* c : cases) {
    const int64_t length = c->first_position + c->count;
    for (int64_t j = 0; j < length; ++j) {
      for (int64_t h = 0; h < shape.kv_heads; ++h) {
        const int64_t slab = next_page[j / kPageTokens] * page_floats + h * head_dim * kPageTokens;
        for (int64_t d = 0; d < head_dim; ++d) {
          const int64_t from = (j * shape.kv_heads + h) * head_dim + d;
          k[slab + d * kPageTokens + j % kPageTokens] = c->k[from];
          v[slab + j % kPageTokens * head_dim + d] = c->v[from];
        }
      }
    }
    for (int32_t i = 0; i < c->count; ++i) {
      std::copy_n(&c->q[i * q_width], q_width, &q[next_row[i] * q_width]);
    }
    sequences.push_back({c->first_position, c->count, next_row, next_page});
    next_row += c->count;
    next_page += (length + kPageTokens - 1) / kPageTokens;
  }

  std::vector<float> out(q.size(), kPoison), cos_sim(rows * shape.q_heads, kPoison),
      proj_frac(cos_sim);
  std::vector<float> scratch(
      context.pool->threads() * AttentionScratchFloats(max_context, static_cast<int32_t>(head_dim)),
      kPoison);
  const bool in_place = seed % 2 == 0;
  const KvLayer kv = {k.data(), v.data(), static_cast<int32_t>(shape.kv_heads),
                      static_cast<int32_t>(head_dim)};
  Attention(context,
            {.q = q.data(),
             .out = in_place ? q.data() : out.data(),
             .q_heads = static_cast<int32_t>(shape.q_heads),
             .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
             .causal = causal,
             .xsa = xsa.form,
             .xsa_eps = xsa.eps,
             .xsa_gate = xsa.gate.empty() ? nullptr : xsa.gate.data(),
             .cos_sim = xsa.diagnostics ? cos_sim.data() : nullptr,
             .proj_frac = xsa.diagnostics ? proj_frac.data() : nullptr},
            kv, sequences, max_context, scratch.data());
  if (in_place) out = q;

  AttentionOutputs outputs;
  const auto gather = [&](const AttentionSequence& s, const std::vector<float>& x, int64_t width) {
    std::vector<float> gathered;
    for (int32_t i = 0; i < s.count; ++i) {
      gathered.insert(gathered.end(), &x[s.rows[i] * width], &x[s.rows[i] * width] + width);
    }
    return gathered;
  };
  for (const AttentionSequence& s : sequences) {
    outputs.out.push_back(gather(s, out, q_width));
    outputs.cos_sim.push_back(gather(s, cos_sim, shape.q_heads));
    outputs.proj_frac.push_back(gather(s, proj_frac, shape.q_heads));
  }
  return outputs;
}

inline reference::XsaResult ReferenceAttention(const reference::AttentionShape& shape,
                                               const SequenceCase& c, bool causal,
                                               const XsaCase& xsa) {
  const double scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  const std::vector<double> v = Widen(c.v), gate = Widen(xsa.gate);
  const std::vector<double> y =
      reference::Attention(shape, Widen(c.q), Widen(c.k), v, c.first_position, causal, scale);
  const std::span<const double> own =
      std::span(v).subspan(c.first_position * shape.kv_heads * shape.head_dim);
  return reference::ExcludeSelf(shape, {xsa.form, xsa.eps, gate}, y, own);
}

}  // namespace sluice::kernels
