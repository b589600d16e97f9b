// Runs attention on a device.
#pragma once

#include "kernels/cuda/attention.h"
#include "tests/kernels/common/attention_bodies.h"
#include "tests/kernels/cuda/op_test.h"

namespace sluice::kernels::cuda {

// Writes the keys and values of a sequence to its slots only, page by page.
template <typename T>
void StoreSequence(DeviceLab& lab, const int32_t* pages, const SequenceCase<T>& c,
                   const KvLayer<T>& kv, int32_t from_key = 0) {
  const int64_t dim = kv.head_dim;
  for (int32_t first = from_key; first < c.length(); first += kPageTokens) {
    const int32_t count = std::min(kPageTokens, c.length() - first);
    for (int32_t h = 0; h < kv.kv_heads; ++h) {
      std::vector<T> k(count * dim), v(count * dim);  // of this page and head
      const KvLayer<T> page = {k.data(), v.data(), 1, kv.head_dim};
      for (int32_t p = first; p < first + count; ++p) {
        const int64_t from = (int64_t{p} * kv.kv_heads + h) * dim;
        for (int32_t d = 0; d < dim; ++d) {
          *page.Row(page.k, p - first, 0).At(d) = c.k[from + d];
          *page.Row(page.v, p - first, 0).At(d) = c.v[from + d];
        }
      }
      const int64_t to = kv.PageOffset(pages[first / kPageTokens], h);
      lab.Write<T>(kv.k + to, k);
      lab.Write<T>(kv.v + to, v);
    }
  }
}

// The device that runs attention: the most shared memory of a block in bytes, and the number of
// processors, which decides the division of tiles; 0 means a random number.
struct AttentionDevice {
  int32_t shared_limit = std::numeric_limits<int32_t>::max();
  int32_t processors = 0;
  bool wants_diagnostics = true;  // if the model has them
};

// Runs attention with `run`. All unused places of the pages stay unwritten.
template <typename T>
AttentionOutputs<T> RunAttention(DeviceLab& lab, std::mt19937_64& random,
                                 const reference::AttentionShape& shape,
                                 const std::vector<SequenceCase<T>>& cases, bool causal,
                                 const XsaCase& xsa, AttentionDevice device = {},
                                 void (*run)(Stream&, const AttentionArgs<T>&) = &Attention<T>) {
  const int64_t dim = shape.head_dim, q_width = shape.q_heads * dim;
  const AttentionLayout layout = LayOut(random, cases, kPageTokens);
  const auto rows = static_cast<int32_t>(layout.rows.size());
  const int64_t cache =
      static_cast<int64_t>(layout.pages.size()) * shape.kv_heads * kPageTokens * dim;
  const KvLayer<T> kv = {lab.Room<T>(cache), lab.Room<T>(cache),
                         static_cast<int32_t>(shape.kv_heads), static_cast<int32_t>(dim)};
  std::vector<AttentionSequence> steps;
  for (size_t s = 0; s < cases.size(); ++s) {
    const auto& [rows_offset, pages_offset] = layout.sequences[s];
    StoreSequence(lab, &layout.pages[pages_offset], cases[s], kv,
                  FirstKeptKey(shape, cases[s], kPageTokens));
    steps.push_back({cases[s].first_position, cases[s].count, rows_offset, pages_offset});
  }
  int32_t longest = 0;
  for (const SequenceCase<T>& c : cases) longest = std::max(longest, c.length());
  constexpr int32_t kProcessors[] = {1, 5, 132};
  if (device.processors == 0) device.processors = kProcessors[random() % 3];
  const AttentionSizes sizes = {.q_heads = static_cast<int32_t>(shape.q_heads),
                                .kv_heads = static_cast<int32_t>(shape.kv_heads),
                                .causal = causal,
                                .max_context = longest,
                                .processors = device.processors,
                                .rows = rows + 2,
                                .sequences = std::ssize(cases) + 1};
  std::vector<AttentionTile> tiles(MaxAttentionTiles(sizes));
  std::vector<int32_t> hidden;
  for (const SequenceCase<T>& c : cases) hidden.push_back(c.hidden);
  const AttentionTileCounts counts = CutIntoAttentionTiles(steps, sizes, std::span(tiles), hidden);
  auto* const taken = lab.Put<int32_t>({0});
  const int64_t diagnostics = rows * shape.q_heads;
  const std::vector<float> unwritten(diagnostics, kPoison);
  const std::vector<T> queries = ByRow(layout, cases, &SequenceCase<T>::q, q_width);
  T* const q = lab.Put(queries);
  const bool in_place = random() % 2 == 0;
  // If not in place, the rows of q may be part of longer rows.
  const int64_t q_stride = in_place || random() % 2 == 0 ? 0 : q_width + 16;
  std::vector<T> apart(rows * q_stride, Narrow<T>(kPoison));
  for (int32_t r = 0; q_stride > 0 && r < rows; ++r) {
    std::copy_n(queries.begin() + r * q_width, q_width, apart.begin() + r * q_stride);
  }
  const AttentionArgs<T> args = {
      .q = q_stride > 0 ? lab.Put(apart) : q,
      .sequences = lab.Put(steps),
      .rows = lab.Put(layout.rows),
      .pages = lab.Put(layout.pages),
      .tiles = {lab.Put(tiles), lab.Put<AttentionTileCounts>({counts}), taken,
                static_cast<int32_t>(tiles.size()),
                static_cast<int32_t>(MaxAttentionRecords(sizes))},
      .kv = kv,
      .q_heads = static_cast<int32_t>(shape.q_heads),
      .q_stride = q_stride,
      .scale = 1.0f / std::sqrt(static_cast<float>(dim)),
      .causal = causal,
      .window = static_cast<int32_t>(shape.window),
      .soft_cap = static_cast<float>(shape.soft_cap),
      .bias = lab.PutOrNull(std::vector<float>(shape.bias.begin(), shape.bias.end())),
      .bias_positions = static_cast<int32_t>(shape.bias_positions),
      .silu_share = static_cast<float>(shape.silu_share),
      .xsa = {.form = xsa.form,
              .eps = xsa.eps,
              .gate = lab.PutOrNull(xsa.gate),
              .cos_sim = xsa.diagnostics ? lab.Put(unwritten) : nullptr,
              .proj_frac = xsa.diagnostics ? lab.Put(unwritten) : nullptr,
              .wanted = device.wants_diagnostics && random() % 2 == 0
                            ? nullptr
                            : lab.Put<int32_t>({device.wants_diagnostics})},
      .scratch = lab.Room<float>(AttentionScratchFloats(sizes, kv.head_dim)),
      .out = in_place ? q : lab.Room<T>(queries.size())};
  LimitedStream stream(lab.stream(), device.shared_limit, device.processors);
  run(stream, args);
  EXPECT_EQ(lab.Get(taken, 1)[0], 0) << "the next launch would skip work";

  AttentionOutputs<T> outputs = {
      RowsBySequence(layout, cases, lab.Get(args.out, queries.size()), q_width), {}, {}};
  if (xsa.diagnostics) {
    const std::vector<float> cos_sim = lab.Get(args.xsa.cos_sim, diagnostics);
    const std::vector<float> proj_frac = lab.Get(args.xsa.proj_frac, diagnostics);
    outputs.cos_sim = RowsBySequence(layout, cases, cos_sim, shape.q_heads);
    outputs.proj_frac = RowsBySequence(layout, cases, proj_frac, shape.q_heads);
  }
  lab.Clear();
  return outputs;
}

}  // namespace sluice::kernels::cuda
