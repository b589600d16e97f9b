// Sequences laid out as in a step: pages and rows in random order, and all unused places unwritten.
#pragma once

#include <numeric>

#include "kernels/cuda/attention.h"
#include "kernels/reference/attention.h"
#include "tests/kernels/cuda/op_test.h"

namespace sluice::kernels::cuda {

// The inputs of one sequence and the position at which its step begins.
template <typename T>
struct SequenceCase {
  int32_t first_position, count;
  std::vector<T> q;     // [count, q_heads, head_dim]
  std::vector<T> k, v;  // [first_position + count, kv_heads, head_dim]
};

template <typename T>
SequenceCase<T> RandomSequence(std::mt19937_64& random, const reference::AttentionShape& shape,
                               int32_t first_position, int32_t count, float scale = 1.0f) {
  const int64_t context = first_position + count, kv_width = shape.kv_heads * shape.head_dim;
  return {first_position, count,
          RandomValues<T>(random, count * shape.q_heads * shape.head_dim, scale),
          RandomValues<T>(random, context * kv_width), RandomValues<T>(random, context * kv_width)};
}

struct XsaCase {
  XsaForm form = XsaForm::kOff;
  float eps = 1e-6f;
  std::vector<float> gate;  // empty means no gate
};

// The rows of each sequence's step, one after another.
template <typename T>
struct AttentionOutputs {
  std::vector<std::vector<T>> out;
  std::vector<std::vector<float>> cos_sim, proj_frac;
};

// A step in host memory: all that attention reads, in the order of the device's arrays.
template <typename T>
struct AttentionStep {
  std::vector<AttentionSequence> sequences;
  std::vector<int32_t> rows, pages;
  int32_t total_rows = 0, total_pages = 3;  // some pages belong to no sequence
};

template <typename T>
AttentionStep<T> LayOut(std::mt19937_64& random, const std::vector<SequenceCase<T>>& cases) {
  AttentionStep<T> step;
  for (const SequenceCase<T>& c : cases) {
    step.total_rows += c.count;
    step.total_pages += (c.first_position + c.count + kPageTokens - 1) / kPageTokens;
  }
  step.rows.resize(step.total_rows);
  std::iota(step.rows.begin(), step.rows.end(), 0);
  std::shuffle(step.rows.begin(), step.rows.end(), random);
  step.pages.resize(step.total_pages);
  std::iota(step.pages.begin(), step.pages.end(), 0);
  std::shuffle(step.pages.begin(), step.pages.end(), random);
  int32_t row = 0, page = 0;
  for (const SequenceCase<T>& c : cases) {
    step.sequences.push_back({c.first_position, c.count, row, page});
    row += c.count;
    page += (c.first_position + c.count + kPageTokens - 1) / kPageTokens;
  }
  return step;
}

// Writes the keys and values of a sequence to its slots and to no others.
template <typename T>
void Store(DeviceLab& lab, const AttentionStep<T>& step, const AttentionSequence& sequence,
           const SequenceCase<T>& c, const KvLayer<T>& kv) {
  const int64_t dim = kv.head_dim;
  for (int32_t p = 0; p < c.first_position + c.count; ++p) {
    const int32_t page = step.pages[sequence.pages_offset + p / kPageTokens];
    for (int32_t h = 0; h < kv.kv_heads; ++h) {
      const int64_t to = kv.Offset(page * kPageTokens + p % kPageTokens, h);
      const int64_t from = (int64_t{p} * kv.kv_heads + h) * dim;
      lab.stream().CopyToDevice(kv.k + to, &c.k[from], dim * sizeof(T));
      lab.stream().CopyToDevice(kv.v + to, &c.v[from], dim * sizeof(T));
    }
  }
}

template <typename T>
AttentionOutputs<T> RunAttention(DeviceLab& lab, std::mt19937_64& random,
                                 const reference::AttentionShape& shape,
                                 const std::vector<SequenceCase<T>>& cases, bool causal,
                                 const XsaCase& xsa, bool in_place = false) {
  const int64_t dim = shape.head_dim, q_width = shape.q_heads * dim;
  const auto group = static_cast<int32_t>(shape.q_heads / shape.kv_heads);
  const AttentionStep<T> step = LayOut(random, cases);
  const int64_t cache = step.total_pages * shape.kv_heads * kPageTokens * dim;
  const KvLayer<T> kv = {lab.Room<T>(cache), lab.Room<T>(cache),
                         static_cast<int32_t>(shape.kv_heads), static_cast<int32_t>(dim)};
  std::vector<T> q(step.total_rows * q_width);
  for (size_t s = 0; s < cases.size(); ++s) {
    Store(lab, step, step.sequences[s], cases[s], kv);
    for (int32_t i = 0; i < cases[s].count; ++i) {
      std::copy_n(&cases[s].q[i * q_width], q_width,
                  &q[step.rows[step.sequences[s].rows_offset + i] * q_width]);
    }
  }
  const auto sequences = static_cast<int32_t>(cases.size());
  const auto capacity =
      static_cast<int32_t>(MaxAttentionTiles(step.total_rows + 2, sequences + 1, group));
  const AttentionTilesArgs tiles = {.sequences = lab.Put(step.sequences),
                                    .sequence_count = lab.Put<int32_t>({sequences}),
                                    .group = group,
                                    .tiles = lab.Room<AttentionTile>(capacity),
                                    .tile_count = lab.Room<int32_t>(1)};
  BuildAttentionTiles(lab.stream(), tiles);
  const int64_t diagnostics = step.total_rows * shape.q_heads;
  T* const q_on_device = lab.Put(q);
  const AttentionArgs<T> args = {
      .q = q_on_device,
      .sequences = tiles.sequences,
      .rows = lab.Put(step.rows),
      .pages = lab.Put(step.pages),
      .tiles = {tiles.tiles, tiles.tile_count, capacity},
      .kv = kv,
      .q_heads = static_cast<int32_t>(shape.q_heads),
      .scale = 1.0f / std::sqrt(static_cast<float>(dim)),
      .causal = causal,
      .xsa = {.form = xsa.form,
              .eps = xsa.eps,
              .gate = xsa.gate.empty() ? nullptr : lab.Put(xsa.gate),
              .cos_sim = xsa.form == XsaForm::kOff ? nullptr : lab.Room<float>(diagnostics),
              .proj_frac = xsa.form == XsaForm::kOff ? nullptr : lab.Room<float>(diagnostics)},
      .out = in_place ? q_on_device : lab.Room<T>(q.size())};
  Attention(lab.stream(), args);

  AttentionOutputs<T> outputs;
  const auto gather = [&](const AttentionSequence& s, const auto& x, int64_t width) {
    std::remove_cvref_t<decltype(x)> gathered;
    for (int32_t i = 0; i < s.count; ++i) {
      const auto from = x.begin() + step.rows[s.rows_offset + i] * width;
      gathered.insert(gathered.end(), from, from + width);
    }
    return gathered;
  };
  const std::vector<T> out = lab.Get(args.out, q.size());
  for (const AttentionSequence& s : step.sequences) outputs.out.push_back(gather(s, out, q_width));
  if (xsa.form == XsaForm::kOff) return outputs;
  const std::vector<float> cos_sim = lab.Get(args.xsa.cos_sim, diagnostics);
  const std::vector<float> proj_frac = lab.Get(args.xsa.proj_frac, diagnostics);
  for (const AttentionSequence& s : step.sequences) {
    outputs.cos_sim.push_back(gather(s, cos_sim, shape.q_heads));
    outputs.proj_frac.push_back(gather(s, proj_frac, shape.q_heads));
  }
  return outputs;
}

template <typename T>
reference::XsaResult ReferenceAttention(const reference::AttentionShape& shape,
                                        const SequenceCase<T>& c, bool causal, const XsaCase& xsa) {
  const double scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  const std::vector<double> v = ToDouble(c.v), gate(xsa.gate.begin(), xsa.gate.end());
  const std::vector<double> y =
      reference::Attention(shape, ToDouble(c.q), ToDouble(c.k), v, c.first_position, causal, scale);
  const std::span<const double> own =
      std::span(v).subspan(c.first_position * shape.kv_heads * shape.head_dim);
  return reference::ExcludeSelf(shape, {xsa.form, xsa.eps, gate}, y, own);
}

}  // namespace sluice::kernels::cuda
