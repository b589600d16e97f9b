// Runs attention on the CPU.
#pragma once

#include "kernels/cpu/attention.h"
#include "tests/kernels/common/attention_bodies.h"
#include "tests/kernels/cpu/op_test.h"

namespace sluice::kernels {

// All orders in which keys may be read, which share their bits.
inline constexpr AttentionChoice kAttentionOrders[] = {{AttentionOrder::kBalanced},
                                                       {AttentionOrder::kOnePass},
                                                       {AttentionOrder::kTwoPass},
                                                       {AttentionOrder::kSplit, 2},
                                                       {AttentionOrder::kSplit, 5}};

// All unused places of the pages and of the scratch hold NaN.
inline AttentionOutputs<float> RunAttention(const Context& context, std::mt19937_64& random,
                                            const reference::AttentionShape& shape,
                                            const std::vector<SequenceCase<float>>& cases,
                                            bool causal, const XsaCase& xsa,
                                            const AttentionChoice& choice = {}) {
  const int64_t dim = shape.head_dim, q_width = shape.q_heads * dim;
  const AttentionLayout layout = LayOut(random, cases, kPageTokens);
  const int64_t page_floats = shape.kv_heads * dim * kPageTokens;
  std::vector<float> k(layout.pages.size() * page_floats, kPoison), v(k);
  std::vector<AttentionSequence> sequences;
  int64_t max_context = 0;
  for (size_t s = 0; s < cases.size(); ++s) {
    const SequenceCase<float>& c = cases[s];
    const int32_t* const pages = &layout.pages[layout.sequences[s].pages_offset];
    max_context = std::max<int64_t>(max_context, c.length());
    for (int64_t j = FirstKeptKey(shape, c, kPageTokens); j < c.length(); ++j) {
      for (int64_t h = 0; h < shape.kv_heads; ++h) {
        const int64_t slab = pages[j / kPageTokens] * page_floats + h * dim * kPageTokens;
        for (int64_t d = 0; d < dim; ++d) {
          const int64_t from = (j * shape.kv_heads + h) * dim + d;
          k[slab + d * kPageTokens + j % kPageTokens] = c.k[from];
          v[slab + j % kPageTokens * dim + d] = c.v[from];
        }
      }
    }
    sequences.push_back(
        {c.first_position, c.count, &layout.rows[layout.sequences[s].rows_offset], pages});
  }

  std::vector<float> q = QueriesByRow(layout, cases, q_width), out(q.size(), kPoison);
  std::vector<float> cos_sim(layout.rows.size() * shape.q_heads, kPoison), proj_frac(cos_sim);
  std::vector<float> scratch(
      AttentionScratchFloats(choice, {.q_heads = static_cast<int32_t>(shape.q_heads),
                                      .kv_heads = static_cast<int32_t>(shape.kv_heads),
                                      .head_dim = static_cast<int32_t>(dim),
                                      .max_context = max_context,
                                      .threads = context.pool->threads(),
                                      .causal = causal,
                                      .window = static_cast<int32_t>(shape.window)}),
      kPoison);
  const bool in_place = random() % 2 == 0;
  const KvLayer kv = {k.data(), v.data(), static_cast<int32_t>(shape.kv_heads),
                      static_cast<int32_t>(dim)};
  Attention(context,
            {.q = q.data(),
             .out = in_place ? q.data() : out.data(),
             .q_heads = static_cast<int32_t>(shape.q_heads),
             .scale = 1.0f / std::sqrt(static_cast<float>(dim)),
             .causal = causal,
             .window = static_cast<int32_t>(shape.window),
             .soft_cap = static_cast<float>(shape.soft_cap),
             .bias = shape.bias.empty() ? nullptr : shape.bias.data(),
             .bias_positions = static_cast<int32_t>(shape.bias_positions),
             .silu_share = static_cast<float>(shape.silu_share),
             .xsa = xsa.form,
             .xsa_eps = xsa.eps,
             .xsa_gate = xsa.gate.empty() ? nullptr : xsa.gate.data(),
             .cos_sim = xsa.diagnostics ? cos_sim.data() : nullptr,
             .proj_frac = xsa.diagnostics ? proj_frac.data() : nullptr,
             .choice = choice},
            kv, sequences, max_context, scratch.data());
  return {RowsBySequence(layout, cases, in_place ? q : out, q_width),
          RowsBySequence(layout, cases, cos_sim, shape.q_heads),
          RowsBySequence(layout, cases, proj_frac, shape.q_heads)};
}

}  // namespace sluice::kernels
