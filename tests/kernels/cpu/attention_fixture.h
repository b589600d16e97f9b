// Runs attention on the CPU.
#pragma once

#include <bit>
#include <optional>

#include "kernels/cpu/attention.h"
#include "tests/kernels/common/attention_bodies.h"
#include "tests/kernels/cpu/op_test.h"

namespace sluice::kernels {

// All orders in which keys may be read. They must give the same bits.
inline constexpr AttentionChoice kAttentionOrders[] = {{AttentionOrder::kBalanced},
                                                       {AttentionOrder::kOnePass},
                                                       {AttentionOrder::kTwoPass},
                                                       {AttentionOrder::kSplit, 2},
                                                       {AttentionOrder::kSplit, 5}};

// Heads in groups of several sizes. Some do not fill vectors.
inline constexpr reference::AttentionShape kAttentionShapes[] = {
    {1, 1, 1}, {4, 4, 8}, {4, 2, 20}, {6, 1, 64}, {8, 2, 37}, {3, 1, 128}, {10, 2, 16}};

// Returns memory for the keys, or the values, of some pages, with all bits set: float elements and
// scales are NaN.
inline std::vector<float> UnwrittenPages(const KvLayer& kv, int64_t pages) {
  const auto bytes = static_cast<size_t>(pages * kv.page_bytes());
  return std::vector<float>(bytes / sizeof(float), std::bit_cast<float>(uint32_t{0xFFFFFFFF}));
}

// The place of keys and values: in pages, or in rows of the step. The rows of a sequence are in any
// order, or one after another.
enum class KeysIn { kPages, kRows, kOrderedRows };

// Returns the shape's tables of relative positions, packed for the context, if it has any.
inline std::optional<RelativePositions> PackRelative(const Context& context,
                                                     const reference::AttentionShape& shape) {
  const reference::RelativeTables& tables = shape.relative;
  if (tables.row_of.empty()) return std::nullopt;
  const std::vector<float> keys(tables.keys.begin(), tables.keys.end());
  const std::vector<float> queries(tables.queries.begin(), tables.queries.end());
  return std::make_optional<RelativePositions>(
      context, static_cast<int32_t>(shape.q_heads), static_cast<int32_t>(shape.head_dim), keys,
      queries, std::vector<int32_t>(tables.row_of.begin(), tables.row_of.end()));
}

// All unused places of the pages and of the scratch are NaN. Expects that memory behind the scratch
// is not written.
inline AttentionOutputs<float> RunAttention(const Context& context, std::mt19937_64& random,
                                            const reference::AttentionShape& shape,
                                            const std::vector<SequenceCase<float>>& cases,
                                            bool causal, const XsaCase& xsa,
                                            const AttentionChoice& choice = {},
                                            KvType type = KvType::kF32,
                                            KeysIn keys_in = KeysIn::kPages) {
  const int64_t dim = shape.head_dim, q_width = shape.q_heads * dim;
  AttentionLayout layout = LayOut(random, cases, kPageTokens);
  if (keys_in == KeysIn::kOrderedRows) std::ranges::sort(layout.rows);
  KvLayer kv = {nullptr, nullptr, static_cast<int32_t>(shape.kv_heads), static_cast<int32_t>(dim),
                type};
  std::vector<float> k = UnwrittenPages(kv, std::ssize(layout.pages)), v(k);
  kv.k = k.data();
  kv.v = v.data();
  std::vector<AttentionSequence> sequences;
  int64_t max_context = 0;
  for (size_t s = 0; s < cases.size(); ++s) {
    const SequenceCase<float>& c = cases[s];
    const int32_t* const pages = &layout.pages[layout.sequences[s].pages_offset];
    max_context = std::max<int64_t>(max_context, c.length());
    for (int64_t j = FirstKeptKey(shape, c, kPageTokens); j < c.length(); ++j) {
      const int64_t slot = int64_t{pages[j / kPageTokens]} * kPageTokens + j % kPageTokens;
      for (int32_t h = 0; h < shape.kv_heads; ++h) {
        const int64_t from = (j * shape.kv_heads + h) * dim;
        StoreKey(kv, slot, h, &c.k[from]);
        StoreValue(kv, slot, h, &c.v[from]);
      }
    }
    sequences.push_back({c.first_position, c.count, &layout.rows[layout.sequences[s].rows_offset],
                         pages, c.hidden});
  }

  const int64_t kv_width = shape.kv_heads * dim;
  std::vector<float> row_k, row_v;
  if (keys_in != KeysIn::kPages) {
    row_k = ByRow(layout, cases, &SequenceCase<float>::k, kv_width);
    row_v = ByRow(layout, cases, &SequenceCase<float>::v, kv_width);
    kv.k = kv.v = nullptr;
    for (AttentionSequence& sequence : sequences) sequence.pages = nullptr;
  }
  std::vector<float> q = ByRow(layout, cases, &SequenceCase<float>::q, q_width);
  std::vector<float> out(q.size(), kPoison);
  std::vector<float> cos_sim(layout.rows.size() * shape.q_heads, kPoison), proj_frac(cos_sim);
  const std::optional<RelativePositions> relative = PackRelative(context, shape);
  constexpr int64_t kBehind = 4096;
  const int64_t scratch_floats =
      AttentionScratchFloats(choice, {.q_heads = static_cast<int32_t>(shape.q_heads),
                                      .kv_heads = static_cast<int32_t>(shape.kv_heads),
                                      .head_dim = static_cast<int32_t>(dim),
                                      .max_context = max_context,
                                      .threads = context.pool->threads(),
                                      .causal = causal,
                                      .window = static_cast<int32_t>(shape.window),
                                      .kv_type = type,
                                      .of_rows = keys_in != KeysIn::kPages,
                                      .relative_rows = relative ? relative->rows() : 0});
  std::vector<float> scratch(scratch_floats + kBehind, kPoison);
  const bool in_place = random() % 2 == 0;
  Attention(context,
            {.q = q.data(),
             .out = in_place ? q.data() : out.data(),
             .k = row_k.empty() ? nullptr : row_k.data(),
             .v = row_v.empty() ? nullptr : row_v.data(),
             .q_heads = static_cast<int32_t>(shape.q_heads),
             .scale = 1.0f / std::sqrt(static_cast<float>(dim)),
             .causal = causal,
             .window = static_cast<int32_t>(shape.window),
             .soft_cap = static_cast<float>(shape.soft_cap),
             .bias = shape.bias.empty() ? nullptr : shape.bias.data(),
             .bias_positions = static_cast<int32_t>(shape.bias_positions),
             .relative = relative ? &*relative : nullptr,
             .silu_share = static_cast<float>(shape.silu_share),
             .xsa = xsa.form,
             .xsa_eps = xsa.eps,
             .xsa_gate = xsa.gate.empty() ? nullptr : xsa.gate.data(),
             .cos_sim = xsa.diagnostics ? cos_sim.data() : nullptr,
             .proj_frac = xsa.diagnostics ? proj_frac.data() : nullptr,
             .choice = choice},
            kv, sequences, max_context, scratch.data());
  EXPECT_TRUE(std::all_of(scratch.begin() + scratch_floats, scratch.end(),
                          [](float x) { return std::isnan(x); }));
  return {RowsBySequence(layout, cases, in_place ? q : out, q_width),
          RowsBySequence(layout, cases, cos_sim, shape.q_heads),
          RowsBySequence(layout, cases, proj_frac, shape.q_heads)};
}

}  // namespace sluice::kernels
