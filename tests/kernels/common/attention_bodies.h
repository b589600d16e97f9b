// The tests of attention that every backend runs. A backend gives a function
//   AttentionOutputs<T> run(shape, cases, causal, xsa)
// that lays the sequences out in pages and rows in random order and computes their attention.
#pragma once

#include <numeric>
#include <utility>

#include "kernels/reference/attention.h"
#include "kernels/xsa_form.h"
#include "tests/kernels/common/values.h"

namespace sluice::kernels {

// The inputs of one sequence, and the position of the first row of its step.
template <typename T>
struct SequenceCase {
  int32_t first_position, count;
  std::vector<T> q;     // [count, q_heads, head_dim]
  std::vector<T> k, v;  // [first_position + count, kv_heads, head_dim]
  int32_t hidden = 0;   // the last positions that no row sees

  int32_t length() const { return first_position + count; }
};

struct XsaCase {
  XsaForm form = XsaForm::kOff;
  float eps = 1e-6f;
  std::vector<float> gate = {};  // empty means no gate
  bool diagnostics = false;
};

// The rows of each sequence's step, one after another. Diagnostics only if the case has them.
template <typename T>
struct AttentionOutputs {
  std::vector<std::vector<T>> out;
  std::vector<std::vector<float>> cos_sim, proj_frac;
};

// The places of sequences in a step: rows and pages in random order.
struct AttentionLayout {
  struct Sequence {
    int32_t rows_offset, pages_offset;
  };
  std::vector<int32_t> rows, pages;  // more pages than the sequences need
  std::vector<Sequence> sequences;
};

template <typename T>
SequenceCase<T> RandomSequence(std::mt19937_64& random, const reference::AttentionShape& shape,
                               int32_t first_position, int32_t count, float scale = 1.0f) {
  const int64_t kv_size = (first_position + count) * shape.kv_heads * shape.head_dim;
  return {first_position, count,
          RandomValues<T>(random, count * shape.q_heads * shape.head_dim, scale),
          RandomValues<T>(random, kv_size), RandomValues<T>(random, kv_size)};
}

// Returns sequences at the given places (first position, count).
template <typename T>
std::vector<SequenceCase<T>> RandomSequences(
    std::mt19937_64& random, const reference::AttentionShape& shape,
    const std::vector<std::pair<int32_t, int32_t>>& places) {
  std::vector<SequenceCase<T>> cases;
  for (const auto& [first, count] : places) {
    cases.push_back(RandomSequence<T>(random, shape, first, count));
  }
  return cases;
}

// Returns the first key of the first page that the step reads. Earlier pages may have been freed,
// so tests leave them unwritten.
template <typename T>
int32_t FirstKeptKey(const reference::AttentionShape& shape, const SequenceCase<T>& c,
                     int32_t page_tokens) {
  const auto first =
      static_cast<int32_t>(shape.Visible(c.first_position, c.length(), /*causal=*/true).first);
  return first / page_tokens * page_tokens;
}

template <typename T>
AttentionLayout LayOut(std::mt19937_64& random, const std::vector<SequenceCase<T>>& cases,
                       int32_t page_tokens) {
  AttentionLayout layout;
  int32_t rows = 0, pages = 0;
  for (const SequenceCase<T>& c : cases) {
    layout.sequences.push_back({rows, pages});
    rows += c.count;
    pages += (c.length() + page_tokens - 1) / page_tokens;
  }
  layout.rows.resize(static_cast<size_t>(rows));
  layout.pages.resize(static_cast<size_t>(pages) + 3);
  for (std::vector<int32_t>* places : {&layout.rows, &layout.pages}) {
    std::iota(places->begin(), places->end(), 0);
    std::shuffle(places->begin(), places->end(), random);
  }
  return layout;
}

// Copies the queries, the keys or the values of all sequences' first `count` positions to their
// rows: [rows, width].
template <typename T>
std::vector<T> ByRow(const AttentionLayout& layout, const std::vector<SequenceCase<T>>& cases,
                     std::vector<T> SequenceCase<T>::*values, int64_t width) {
  std::vector<T> x(layout.rows.size() * static_cast<size_t>(width));
  for (size_t s = 0; s < cases.size(); ++s) {
    for (int32_t i = 0; i < cases[s].count; ++i) {
      const int32_t row = layout.rows[layout.sequences[s].rows_offset + i];
      std::copy_n(&(cases[s].*values)[i * width], width, &x[row * width]);
    }
  }
  return x;
}

// Collects the rows of each sequence from `x` [rows, width].
template <typename T, typename Value>
std::vector<std::vector<Value>> RowsBySequence(const AttentionLayout& layout,
                                               const std::vector<SequenceCase<T>>& cases,
                                               const std::vector<Value>& x, int64_t width) {
  std::vector<std::vector<Value>> out(cases.size());
  for (size_t s = 0; s < cases.size(); ++s) {
    for (int32_t i = 0; i < cases[s].count; ++i) {
      const auto from = x.begin() + layout.rows[layout.sequences[s].rows_offset + i] * width;
      out[s].insert(out[s].end(), from, from + width);
    }
  }
  return out;
}

template <typename T>
reference::XsaResult ReferenceAttention(const reference::AttentionShape& shape,
                                        const SequenceCase<T>& c, bool causal, const XsaCase& xsa) {
  const double scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  const std::vector<double> v = ToDouble(c.v), k = ToDouble(c.k), gate = ToDouble(xsa.gate);
  const int64_t seen = (c.length() - c.hidden) * shape.kv_heads * shape.head_dim;
  const std::vector<double> y =
      reference::Attention(shape, ToDouble(c.q), std::span(k).first(seen), std::span(v).first(seen),
                           c.first_position, causal, scale);
  const std::span<const double> own =
      std::span(v).subspan(c.first_position * shape.kv_heads * shape.head_dim);
  return reference::ExcludeSelf(shape, {xsa.form, xsa.eps, gate}, y, own);
}

// Runs attention `runs` times and compares each run with the reference, which is computed once.
// `run` takes the next order or number of threads each time. Diagnostics are not compared for heads
// of one feature: if its sum nearly cancels, they are quotients of rounding errors.
template <typename T, typename Run>
void ExpectAttentionEqualsReference(const Run& run, const reference::AttentionShape& shape,
                                    const std::vector<SequenceCase<T>>& cases, bool causal,
                                    const XsaCase& xsa, int runs = 1) {
  std::vector<AttentionOutputs<T>> outputs;
  for (int i = 0; i < runs; ++i) outputs.push_back(run(shape, cases, causal, xsa));
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(testing::Message() << shape.q_heads << "/" << shape.kv_heads << " heads of "
                                    << shape.head_dim << ", positions " << cases[i].first_position
                                    << " + " << cases[i].count << (causal ? " causal" : ""));
    const reference::XsaResult expected = ReferenceAttention(shape, cases[i], causal, xsa);
    for (const AttentionOutputs<T>& got : outputs) {
      EXPECT_TRUE(Matches(Op::kAttention, got.out[i], expected.out));
      if (!xsa.diagnostics || shape.head_dim == 1) continue;
      EXPECT_TRUE((Matches<float, T>(Op::kDiagnostics, got.cos_sim[i], expected.cos_sim)));
      EXPECT_TRUE((Matches<float, T>(Op::kDiagnostics, got.proj_frac[i], expected.proj_frac)));
    }
  }
}

// Heads with a window, a soft cap, a bias and SiLU of scores. Each may be missing.
struct ShapedHeads {
  std::vector<float> bias;
  reference::AttentionShape shape;

  ShapedHeads(std::mt19937_64& random, int64_t head_dim, int32_t longest) {
    constexpr int64_t kWindows[] = {0, 1, 2, 7, 16, 40, 100, 512, 600};
    shape = {.q_heads = 2 + 2 * static_cast<int64_t>(random() % 3),
             .kv_heads = 2,
             .head_dim = head_dim,
             .window = kWindows[random() % std::size(kWindows)],
             .soft_cap = random() % 2 == 0 ? 0.0 : 1.5};
    if (random() % 3 == 0) shape.silu_share = 0.125;
    if (random() % 3 > 0) return;
    shape.bias_positions = longest + static_cast<int64_t>(random() % 20);
    bias = RandomValues<float>(random, shape.q_heads * (2 * shape.bias_positions + 16));
    shape.bias = bias;
  }
  ShapedHeads(const ShapedHeads&) = delete;
  ShapedHeads& operator=(const ShapedHeads&) = delete;
};

// Checks windows, soft caps, biases, SiLU of scores and hidden positions, over contexts of up to
// three segments of keys. Pages that a window hides are never written.
template <typename T, typename Run>
void ExpectShapedScoresEqualReference(const Run& run, std::mt19937_64& random, int trials) {
  constexpr int64_t kDims[] = {8, 24, 64, 80, 136};
  for (int trial = 0; trial < trials; ++trial) {
    const bool causal = random() % 3 > 0;
    const auto below = [&](int32_t n) { return static_cast<int32_t>(random() % n); };
    std::vector<std::pair<int32_t, int32_t>> places;
    int32_t longest = 0;
    for (int i = 0; i <= trial % 3; ++i) {
      const int32_t first = !causal ? 0 : below(3) == 0 ? below(30) : 470 + below(700);
      const int32_t count = causal ? 1 + below(below(2) == 0 ? 4 : 60) : 1 + below(700);
      places.emplace_back(first, count);
      longest = std::max(longest, first + count);
    }
    const ShapedHeads heads(random, kDims[random() % std::size(kDims)], longest);
    const reference::AttentionShape& shape = heads.shape;
    SCOPED_TRACE(testing::Message() << "window " << shape.window << ", cap " << shape.soft_cap
                                    << (shape.bias.empty() ? "" : ", bias")
                                    << (shape.silu_share == 0 ? "" : ", SiLU"));
    XsaCase xsa;
    if (shape.silu_share == 0 && random() % 4 == 0) xsa.form = XsaForm::kNorm;
    std::vector<SequenceCase<T>> cases = RandomSequences<T>(random, shape, places);
    for (SequenceCase<T>& c : cases) {
      if (causal || xsa.form != XsaForm::kOff || below(2) == 0) continue;
      // Each row sees a key.
      const auto window = static_cast<int32_t>(shape.window);
      c.hidden = below(window > 0 ? std::min(window, c.count) : c.count);
    }
    ExpectAttentionEqualsReference<T>(run, shape, cases, causal, xsa);
  }
}

// Keys before a row's window may hold anything, even NaN of its own sequence.
template <typename T, typename Run>
void ExpectPositionsBeforeTheWindowDoNotInfluenceARow(const Run& run, std::mt19937_64& random,
                                                      reference::AttentionShape shape) {
  shape.window = 10;
  const int32_t first = 3, count = 60, unseen = 30;
  const SequenceCase<T> clean = RandomSequence<T>(random, shape, first, count);
  SequenceCase<T> dirty = clean;
  const int64_t width = shape.kv_heads * shape.head_dim;
  std::fill_n(dirty.k.begin(), unseen * width, cuda::Narrow<T>(kPoison));
  std::fill_n(dirty.v.begin(), unseen * width, cuda::Narrow<T>(kPoison));
  const auto out = run(shape, std::vector{clean, dirty}, true, XsaCase{}).out;
  const int64_t row = shape.q_heads * shape.head_dim;
  const int64_t clear = (unseen + shape.window - 1 - first) * row;  // the first row that sees none
  EXPECT_TRUE(
      SameBits<T>({out[0].begin() + clear, out[0].end()}, {out[1].begin() + clear, out[1].end()}));
  EXPECT_TRUE(std::isnan(cuda::Widen(out[1][clear - 1])));
}

// Checks both forms, without and with a gate.
template <typename T, typename Run>
void ExpectSelfIsExcludedInEveryForm(const Run& run, std::mt19937_64& random,
                                     const reference::AttentionShape& shape,
                                     const std::vector<SequenceCase<T>>& cases) {
  for (XsaForm form : {XsaForm::kNorm, XsaForm::kSquared}) {
    const auto gate = RandomValues<float>(random, shape.q_heads);
    ExpectAttentionEqualsReference(run, shape, cases, true, {form, 1e-6f, {}, true});
    ExpectAttentionEqualsReference(run, shape, cases, false, {form, 1e-8f, gate, true});
  }
}

// Checks own values whose norm is far below, around and above eps.
template <typename T, typename Run>
void ExpectEpsBoundsTheDivisor(const Run& run, std::mt19937_64& random) {
  const reference::AttentionShape shape = {4, 2, 12};
  for (float scale : {0.0f, 1e-7f, 1e-5f}) {
    SequenceCase<T> c = RandomSequence<T>(random, shape, 0, 20);
    for (T& value : c.v) value = cuda::Narrow<T>(cuda::Widen(value) * scale);
    for (XsaForm form : {XsaForm::kNorm, XsaForm::kSquared}) {
      for (float eps : {1e-6f, 1e-8f, 1e-12f}) {
        ExpectAttentionEqualsReference<T>(run, shape, {c}, true, {form, eps, {}, true});
      }
    }
  }
}

// At position 0, attention's output is the row's own value. Exclusion must leave exact zeros.
template <typename T, typename Run>
void ExpectNothingIsLeftAtPositionZero(const Run& run, std::mt19937_64& random) {
  for (int64_t dim : {8, 64, 100, 256}) {
    const reference::AttentionShape shape = {4, 2, dim};
    const SequenceCase<T> c = RandomSequence<T>(random, shape, 0, 3);
    for (XsaForm form : {XsaForm::kNorm, XsaForm::kSquared}) {
      SCOPED_TRACE(testing::Message() << "head_dim " << dim << ", form " << static_cast<int>(form));
      const XsaCase xsa = {form, 1e-6f, {}, true};
      const AttentionOutputs<T> outputs = run(shape, std::vector{c}, true, xsa);
      const reference::XsaResult expected = ReferenceAttention(shape, c, true, xsa);
      for (int64_t i = 0; i < shape.q_heads * dim; ++i) {
        ASSERT_EQ(cuda::Widen(outputs.out[0][i]), 0) << i;
        ASSERT_EQ(expected.out[i], 0) << i;
      }
      for (int64_t h = 0; h < shape.q_heads; ++h) {
        EXPECT_NEAR(outputs.proj_frac[0][h], 1, 1e-6);
      }
    }
  }
}

template <typename T, typename Run>
void ExpectLargeScoresAreExact(const Run& run, std::mt19937_64& random) {
  const reference::AttentionShape shape = {4, 2, 16};
  ExpectAttentionEqualsReference<T>(run, shape, {RandomSequence<T>(random, shape, 0, 40, 50.0f)},
                                    true, {});
}

// Positions that a row must not see may hold anything, even NaN of its own sequence.
template <typename T, typename Run>
void ExpectLaterPositionsDoNotInfluenceARow(const Run& run, std::mt19937_64& random,
                                            const reference::AttentionShape& shape) {
  const int32_t first = 3, count = 50, unseen = 30;
  const SequenceCase<T> clean = RandomSequence<T>(random, shape, first, count);
  SequenceCase<T> dirty = clean;
  const int64_t width = shape.kv_heads * shape.head_dim;
  std::fill(dirty.k.begin() + unseen * width, dirty.k.end(), cuda::Narrow<T>(kPoison));
  std::fill(dirty.v.begin() + unseen * width, dirty.v.end(), cuda::Narrow<T>(kPoison));
  const auto out = run(shape, std::vector{clean, dirty}, true, XsaCase{XsaForm::kNorm}).out;
  const int64_t seen = (unseen - first) * shape.q_heads * shape.head_dim;
  EXPECT_TRUE(SameBits<T>({out[0].begin(), out[0].begin() + seen},
                          {out[1].begin(), out[1].begin() + seen}));
  EXPECT_TRUE(std::isnan(cuda::Widen(out[1][seen])));
}

// Values that are not finite affect the rows that see them, in the same feature. All other outputs
// have the same bits as with finite values.
template <typename T, typename Run>
void ExpectValuesReachOnlyRowsThatSeeThem(const Run& run, std::mt19937_64& random,
                                          const reference::AttentionShape& shape) {
  struct Blemish {
    int32_t position;
    int64_t feature;
    float value;
  };
  const int64_t heads = shape.q_heads, dim = shape.head_dim;
  const int32_t count = 50;
  for (int32_t first : {0, 37}) {
    const Blemish blemishes[] = {
        {first + 3, dim - 1, kInfinity},   {first + 20, 1, kPoison},
        {first + 31, 0, kInfinity},        {first + 32, dim - 1, -kInfinity},
        {first + 47, dim / 2, -kInfinity}, {first + count - 1, 2, kPoison}};
    const SequenceCase<T> clean = RandomSequence<T>(random, shape, first, count);
    SequenceCase<T> dirty = clean;
    for (const Blemish& b : blemishes) {  // in the last KV head
      const int64_t head = (b.position + 1) * shape.kv_heads - 1;
      dirty.v[head * dim + b.feature] = cuda::Narrow<T>(b.value);
    }
    const auto out = run(shape, std::vector{clean, dirty}, true, XsaCase{}).out;
    for (int64_t i = 0; i < std::ssize(out[0]); ++i) {
      const int64_t head = i / dim % heads, position = first + i / dim / heads;
      float seen = 0;
      for (const Blemish& b : blemishes) {
        const bool own = head / (heads / shape.kv_heads) == shape.kv_heads - 1 &&
                         b.feature == i % dim && b.position <= position;
        if (own) seen += b.value;
      }
      const float got = cuda::Widen(out[1][i]);
      const float expected = seen == 0 ? cuda::Widen(out[0][i]) : seen;
      ASSERT_TRUE(std::isnan(expected) ? std::isnan(got) : SameBits<float>({got}, {expected}))
          << "feature " << i % dim << " of head " << head << " at position " << position << " of "
          << first << " + " << count << " is " << got << ", not " << expected;
    }
  }
}

// Computes the tokens [first, length) of a prompt in one step, and `count` rows from each of
// `positions` on in a separate step. The bits must be the same.
template <typename T, typename Run>
void ExpectPrefillAndDecodeAgree(const Run& run, std::mt19937_64& random,
                                 const reference::AttentionShape& shape, const XsaCase& xsa,
                                 int32_t length, std::span<const int32_t> positions,
                                 std::initializer_list<int32_t> counts, int32_t first = 0) {
  const int64_t q_width = shape.q_heads * shape.head_dim,
                kv_width = shape.kv_heads * shape.head_dim;
  const SequenceCase<T> whole = RandomSequence<T>(random, shape, first, length - first);
  const std::vector<T> prefill = run(shape, std::vector{whole}, true, xsa).out[0];
  for (int32_t p : positions) {
    for (int32_t wanted : counts) {
      const int32_t count = std::min(wanted, length - p);
      const SequenceCase<T> step = {p,
                                    count,
                                    {whole.q.begin() + (p - first) * q_width,
                                     whole.q.begin() + (p - first + count) * q_width},
                                    {whole.k.begin(), whole.k.begin() + (p + count) * kv_width},
                                    {whole.v.begin(), whole.v.begin() + (p + count) * kv_width}};
      const auto from = prefill.begin() + (p - first) * q_width;
      ASSERT_TRUE(
          SameBits(run(shape, std::vector{step}, true, xsa).out[0], {from, from + count * q_width}))
          << count << " from position " << p;
    }
  }
}

}  // namespace sluice::kernels
