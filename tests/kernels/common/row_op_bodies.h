// The tests of row-wise ops that every backend runs. `Ops` is a backend: lab_ holds its memory, and
// its functions compute an op on rows of Ops::Element. nullptr means an absent operand.
#pragma once

#include <initializer_list>

#include "kernels/reference/activation.h"
#include "kernels/reference/norm.h"
#include "tests/kernels/common/values.h"

namespace sluice::kernels {

struct RowsShape {
  int32_t rows, dim;
};

inline constexpr Activation kAllActivations[] = {Activation::kSilu, Activation::kGelu,
                                                 Activation::kGeluTanh, Activation::kRelu,
                                                 Activation::kSquaredRelu};

// Calls compute(in, out) with separate buffers and in place; the results must have the same bits.
template <typename Ops, typename T, typename Compute>
void ExpectRowsMatch(Ops& ops, Op op, const std::vector<T>& in, const std::vector<double>& expected,
                     Compute compute) {
  T* const from = ops.lab_.Put(in);
  T* const to = ops.lab_.template Room<T>(in.size());
  compute(from, to);
  const std::vector<T> out = ops.lab_.Get(to, in.size());
  EXPECT_TRUE(Matches(op, out, expected));
  compute(from, from);
  EXPECT_TRUE(SameBits(ops.lab_.Get(from, in.size()), out)) << "in place";
  ops.lab_.Clear();
}

template <typename Ops, typename T = typename Ops::Element>
void ExpectRmsNormEqualsReference(Ops& ops, std::mt19937_64& random,
                                  std::span<const RowsShape> shapes) {
  for (const auto& shape : shapes) {
    const auto [rows, dim] = shape;
    const float scale = dim % 2 == 0 ? 1e-3f : 3.0f;  // eps matters, or does not
    const auto x = RandomValues<T>(random, rows * dim, scale);
    for (const auto& weight : {RandomValues<T>(random, dim), std::vector<T>()}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << dim << ", weights " << weight.size());
      ExpectRowsMatch(ops, Op::kRowWise, x,
                      reference::RmsNorm(ToDouble(x), ToDouble(weight), 1e-5f, dim),
                      [&](const T* in, T* out) {
                        ops.RmsNorm(in, ops.lab_.PutOrNull(weight), 1e-5f, shape, out);
                      });
    }
  }
}

template <typename Ops, typename T = typename Ops::Element>
void ExpectLayerNormEqualsReference(Ops& ops, std::mt19937_64& random,
                                    std::span<const RowsShape> shapes) {
  for (const auto& shape : shapes) {
    const auto [rows, dim] = shape;
    auto x = RandomValues<T>(random, rows * dim);
    // In a plain sum of squares, the mean would hide the variance.
    for (T& value : x) value = cuda::Narrow<T>(cuda::Widen(value) + 5);
    for (const int32_t weights : {dim, 0}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << dim << ", weights " << weights);
      const auto weight = RandomValues<T>(random, weights), bias = RandomValues<T>(random, weights);
      ExpectRowsMatch(
          ops, Op::kLayerNorm, x,
          reference::LayerNorm(ToDouble(x), ToDouble(weight), ToDouble(bias), 1e-3f, dim),
          [&](const T* in, T* out) {
            ops.LayerNorm(in, ops.lab_.PutOrNull(weight), ops.lab_.PutOrNull(bias), 1e-3f, shape,
                          out);
          });
    }
  }
}

template <typename Ops, typename T = typename Ops::Element>
void ExpectActivationsEqualReference(Ops& ops, std::mt19937_64& random,
                                     std::span<const RowsShape> shapes) {
  for (const Activation activation : kAllActivations) {
    for (const auto& shape : shapes) {
      const auto [rows, dim] = shape;
      // The functions are curved near zero and almost straight far from it.
      const float range = dim % 2 == 0 ? 20.0f : 1.0f;
      const auto x = RandomValues<T>(random, rows * dim, range);
      for (const auto& up : {RandomValues<T>(random, rows * dim), std::vector<T>()}) {
        SCOPED_TRACE(testing::Message() << "activation " << static_cast<int>(activation) << ", "
                                        << rows << " x " << dim);
        std::vector<double> expected;
        for (size_t i = 0; i < x.size(); ++i) {
          expected.push_back(reference::Activate(activation, cuda::Widen(x[i])) *
                             (up.empty() ? 1 : cuda::Widen(up[i])));
        }
        ExpectRowsMatch(ops, Op::kRowWise, x, expected, [&](const T* in, T* out) {
          ops.Activate(activation, in, ops.lab_.PutOrNull(up), shape, out);
        });
      }
    }
  }
}

// Checks sequences with rows in any order. The last sequence may be incomplete.
template <typename Ops, typename T = typename Ops::Element>
void ExpectExchangeMovesBlocks(Ops& ops, std::mt19937_64& random) {
  for (const auto& [rows, tokens, block] :
       {std::tuple{8, 4, 8}, {9, 3, 5}, {1, 1, 7}, {12, 12, 16}, {7, 3, 4}}) {
    SCOPED_TRACE(testing::Message() << rows << " rows, " << tokens << " tokens of " << block);
    const int64_t width = int64_t{tokens} * block;
    const auto in = RandomValues<T>(random, rows * width);
    std::vector<int32_t> places(rows);
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), random);
    std::vector<T> expected(in.size(), cuda::Narrow<T>(0.0f));
    for (int32_t i = 0; i < rows; ++i) {
      const int32_t first = i / tokens * tokens, t = i % tokens;
      for (int32_t h = 0; h < tokens && first + h < rows; ++h) {
        std::copy_n(&in[places[first + h] * width + t * block], block,
                    &expected[places[i] * width + h * block]);
      }
    }
    T* const out = ops.lab_.template Room<T>(rows * width);
    ops.Exchange(ops.lab_.Put(in), places, tokens, block, out);
    EXPECT_TRUE(SameBits<T>(ops.lab_.Get(out, rows * width), expected));
  }
}

// Each weight applies to `repeat` neighbouring features.
template <typename Ops, typename T = typename Ops::Element>
void ExpectMixEqualsReference(Ops& ops, std::mt19937_64& random, std::span<const RowsShape> shapes,
                              std::initializer_list<int32_t> repeats) {
  for (const auto& shape : shapes) {
    for (const int32_t repeat : repeats) {
      for (int kind = 0; kind < 8; ++kind) {
        const auto [rows, dim] = shape;
        SCOPED_TRACE(testing::Message()
                     << rows << " x " << dim << ", repeat " << repeat << ", kind " << kind);
        const auto a = RandomValues<T>(random, rows * dim);
        const auto a_weight = RandomValues<T>(random, (kind & 1) != 0 ? dim / repeat : 0);
        const auto b = RandomValues<T>(random, (kind & 2) != 0 ? rows * dim : 0);
        const auto b_weight = RandomValues<T>(random, (kind & 4) != 0 ? dim / repeat : 0);
        std::vector<double> expected;
        for (int32_t i = 0; i < rows * dim; ++i) {
          const int32_t d = i % dim / repeat;
          const auto term = [&](const std::vector<T>& x, const std::vector<T>& weight) {
            if (x.empty()) return 0.0;
            return double{cuda::Widen(x[i])} * (weight.empty() ? 1.0 : cuda::Widen(weight[d]));
          };
          expected.push_back(term(a, a_weight) + term(b, b_weight));
        }
        ExpectRowsMatch(ops, Op::kRowWise, a, expected, [&](const T* in, T* out) {
          ops.Mix(in, ops.lab_.PutOrNull(a_weight), ops.lab_.PutOrNull(b),
                  ops.lab_.PutOrNull(b_weight), repeat, shape, out);
        });
      }
    }
  }
}

// Checks scaling, accumulation, absent ids and rows with a negative id, which stay unchanged.
template <typename Ops, typename T = typename Ops::Element>
void ExpectEmbedScalesAccumulatesAndSkips(Ops& ops, std::mt19937_64& random, int32_t dim) {
  const auto table = RandomValues<T>(random, 5 * dim), before = RandomValues<T>(random, 4 * dim);
  for (const bool accumulate : {false, true}) {
    for (const auto& ids : {std::vector<int32_t>{4, -1, 0, 2}, std::vector<int32_t>()}) {
      std::vector<T> expected = before;
      for (int32_t i = 0; i < 4 * dim; ++i) {
        const int32_t id = ids.empty() ? 0 : ids[i / dim];
        if (id < 0) continue;
        const float base = accumulate ? cuda::Widen(before[i]) : 0.0f;
        expected[i] = cuda::Narrow<T>(base + 2.5f * cuda::Widen(table[id * dim + i % dim]));
      }
      T* const out = ops.lab_.Put(before);
      ops.Embed(ops.lab_.Put(table), ops.lab_.PutOrNull(ids), accumulate, 2.5f, {4, dim}, out);
      EXPECT_TRUE(SameBits(ops.lab_.Get(out, before.size()), expected));
    }
  }
}

}  // namespace sluice::kernels
