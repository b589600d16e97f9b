// Row-wise and elementwise kernels. Included by table.inc; see vec.h for the rules.
#pragma once

#include "kernels/cpu/kv_cache.h"
#include "kernels/cpu/simd/dot.h"
#include "kernels/cpu/simd/vec.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

// Sets sums[r] to sum_i (a[i] - shift[r])^2, or sum_i a[i] - shift[r], for R rows of n values. The
// order of a sum depends only on n.
template <bool kSquared, int R>
SLUICE_INLINE void SumRows(const float* a, const float (&shift)[R], int64_t n, float (&sums)[R]) {
  VecF sum[R][kSumVectors] = {};
  for (int64_t i = 0; i < n; i += kSumLanes) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int p = 0; p < kSumVectors; ++p) {
        const float* const row = a + r * n + i + p * kLanes;
        const int64_t left = n - i - p * kLanes;
        const VecF x = (left >= kLanes ? Load(row) : LoadPartial(row, left, shift[r])) - shift[r];
        sum[r][p] = sum[r][p] + (kSquared ? x * x : x);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sums[r] = SumLanes(sum[r]);
}

// Rows that are normalised together, so that no row waits for its own sums.
inline constexpr int kNormRows = 4;

template <int R>
static void LayerNormOf(const float* x, const float* weight, const float* bias, float eps,
                        int64_t dim, float* out) {
  const float size = static_cast<float>(dim);
  const float zero[R] = {};
  float mean[R], inverse[R];
  SumRows<false>(x, zero, dim, mean);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) mean[r] = mean[r] / size;
  SumRows<true>(x, mean, dim, inverse);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) inverse[r] = 1.0f / __builtin_sqrtf(inverse[r] / size + eps);
  for (int64_t i = 0; i < dim; i += kLanes) {
    const int64_t left = dim - i;
    const VecF scale = weight != nullptr ? LoadUpTo(weight + i, left) : VecF{};
    const VecF shift = bias != nullptr ? LoadUpTo(bias + i, left) : VecF{};
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      VecF y = (LoadUpTo(x + r * dim + i, left) - mean[r]) * inverse[r];
      if (weight != nullptr) y = y * scale;
      if (bias != nullptr) y = y + shift;
      StoreUpTo(out + r * dim + i, y, left);
    }
  }
}

static void LayerNorm(const float* x, const float* weight, const float* bias, float eps,
                      int64_t rows, int64_t dim, float* out) {
  int64_t r = 0;
  for (; r + kNormRows <= rows; r += kNormRows) {
    LayerNormOf<kNormRows>(x + r * dim, weight, bias, eps, dim, out + r * dim);
  }
  for (; r < rows; ++r) LayerNormOf<1>(x + r * dim, weight, bias, eps, dim, out + r * dim);
}

static void RmsNormOf(const float* x, const float* weight, float eps, int64_t dim, float* out) {
  const float mean_square = Dot(x, x, dim) / static_cast<float>(dim);
  const VecF inverse = Broadcast(1.0f / __builtin_sqrtf(mean_square + eps));
  int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    const VecF scaled = Load(x + i) * inverse;
    Store(out + i, weight != nullptr ? scaled * Load(weight + i) : scaled);
  }
  for (; i < dim; ++i) {
    const float scaled = x[i] * inverse[0];
    out[i] = weight != nullptr ? scaled * weight[i] : scaled;
  }
}

static void RmsNorm(const float* x, const float* weight, float eps, int64_t rows, int64_t dim,
                    float* out) {
  for (int64_t r = 0; r < rows; ++r) RmsNormOf(x + r * dim, weight, eps, dim, out + r * dim);
}

// Computes out[i] = a[i] * a_weight[i] + b[i] * b_weight[i].
static void Mix(const float* a, const float* a_weight, const float* b, const float* b_weight,
                int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t left = n - i;
    const bool whole = left >= kLanes;
    const auto load = [&](const float* p) {
      return whole ? Load(p + i) : LoadPartial(p + i, left, 0.0f);
    };
    VecF y = load(a);
    if (a_weight != nullptr) y = y * load(a_weight);
    if (b != nullptr) y = y + (b_weight != nullptr ? load(b) * load(b_weight) : load(b));
    if (whole) {
      Store(out + i, y);
    } else {
      StorePartial(out + i, y, left);
    }
  }
}

static void Rotate(const float* x, const float* cos, const float* sin, int64_t half, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const VecF a = Load(x + i), b = Load(x + half + i), c = Load(cos + i), s = Load(sin + i);
    Store(out + i, a * c - b * s);
    Store(out + half + i, b * c + a * s);
  }
  for (; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    out[i] = a * cos[i] - b * sin[i];
    out[half + i] = b * cos[i] + a * sin[i];
  }
}

// Writes keys to a page of f32; see Table::store_keys.
static void StoreKeys(const float* keys, int64_t stride, int64_t count, int64_t dim, float* page) {
  for (int64_t token = 0; token < count; token += kLanes) {
    for (int64_t first = 0; first < dim; first += kLanes) {
      VecF v[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        const int64_t row = token + i < count ? token + i : count - 1;
        v[i] = LoadUpTo(keys + row * stride + first, dim - first);
      }
      Transpose(v);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        if (first + i >= dim) break;
        StoreUpTo(page + (first + i) * kPageTokens + token, v[i], count - token);
      }
    }
  }
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
