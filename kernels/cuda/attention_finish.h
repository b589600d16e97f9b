// The epilogue of attention: the division by the sum of weights, XSA, and the row. Device code
// only.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention_work.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/vector.h"
#include "kernels/cuda/xsa_math.h"
#include "kernels/simt/simt.h"

namespace sluice::kernels::cuda {

// The products of two rows, of which XSA excludes one, are sums in one fixed tree. The products of
// features 2 i and 2 i + 1 are added first, then blocks of 8 features in pairs, pairs of pairs and
// so on, and then the 4 sums i % 4.

// Returns the sum of the products of two rows whose features lanes hold like the sums of WarpSums:
// `a` and `b` return the two features of block `n`.
template <int32_t kBlocks, typename A, typename B>
__device__ float DotInBlocks(A a, B b) {
  float sums[kBlocks];
  SLUICE_UNROLL
  for (int32_t n = 0; n < kBlocks; ++n) {
    const Floats<2> x = a(n), y = b(n);
    sums[n] = fmaf(x.at[1], y.at[1], x.at[0] * y.at[0]);
  }
  SLUICE_UNROLL
  for (int32_t step = 1; step < kBlocks; step *= 2) {
    SLUICE_UNROLL
    for (int32_t n = 0; n < kBlocks; n += 2 * step) sums[n] += sums[n + step];
  }
  return LaneReduce<4>(sums[0], Plus());
}

// Returns the same sum for rows of which each lane holds kEach neighbouring features.
template <int32_t kEach>
__device__ float Dot(const Floats<kEach>& a, const Floats<kEach>& b) {
  constexpr int32_t kPairs = kEach / 2, kLanes = 4 / kPairs;  // of a lane, and of 8 features
  float sums[kPairs];
  SLUICE_UNROLL
  for (int32_t i = 0; i < kPairs; ++i) {
    sums[i] = fmaf(a.at[2 * i + 1], b.at[2 * i + 1], a.at[2 * i] * b.at[2 * i]);
    SLUICE_UNROLL
    for (int32_t mask = kLanes; mask < kWarp; mask *= 2) sums[i] += ShuffleXor(sums[i], mask);
  }
  if constexpr (kPairs == 4) {
    return (sums[0] + sums[2]) + (sums[1] + sums[3]);
  } else if constexpr (kPairs == 2) {
    SLUICE_UNROLL
    for (int32_t i = 0; i < 2; ++i) sums[i] += ShuffleXor(sums[i], 1);
    return sums[0] + sums[1];
  } else {
    return LaneReduce<4>(sums[0], Plus());
  }
}

// Reads this lane's features of a row. Features beyond the row are zeros.
template <bool kAligned, int32_t kEach, typename T>
__device__ Floats<kEach> ReadRow(const KvRow<T>& row, int32_t dim) {
  const int32_t first = Lane() * kEach;
  Floats<kEach> values = {};
  if constexpr (kAligned) {
    constexpr int32_t kWidth = kEach < kCopyElements<T> ? kEach : kCopyElements<T>;
    SLUICE_UNROLL
    for (int32_t j = 0; j < kEach; j += kWidth) {
      if (first + j >= dim) continue;
      const Floats<kWidth> part = Load<kWidth>(row.At(first + j));
      SLUICE_UNROLL
      for (int32_t i = 0; i < kWidth; ++i) values.at[j + i] = part.at[i];
    }
  } else {
    SLUICE_UNROLL
    for (int32_t j = 0; j < kEach; ++j) {
      if (first + j < dim) values.at[j] = Widen(*row.At(first + j));
    }
  }
  return values;
}

// Divides the sums y of a query by the sum of its weights, excludes the own value and writes the
// row.
template <bool kAligned, int32_t kEach, typename T>
__device__ void FinishRow(const AttentionArgs<T>& args, const AttentionWork& work,
                          const QueryPlace& query, Floats<kEach> y, float sum) {
  const int32_t dim = args.kv.head_dim, first = Lane() * kEach;
  const int64_t place = int64_t{query.row} * args.q_heads + query.head;
  const float inverse = 1.0f / sum;
  SLUICE_UNROLL
  for (int32_t j = 0; j < kEach; ++j) y.at[j] *= inverse;
  if (args.xsa.form != XsaForm::kOff) {
    const auto v = ReadRow<kAligned, kEach>(ValueOf(args, work, query.position), dim);
    const bool diagnostics = WantsDiagnostics(args.xsa);
    const XsaProducts products = {Dot(y, v), Dot(v, v), diagnostics ? Dot(y, y) : 0.0f};
    if (diagnostics && Lane() == 0) WriteDiagnostics(args.xsa, products, place);
    const float factor = XsaFactor(args.xsa, products, query.head);
    SLUICE_UNROLL
    for (int32_t j = 0; j < kEach; ++j) y.at[j] -= factor * v.at[j];
  }
  T* const out = args.out + place * dim;
  if constexpr (kAligned) {
    if (first < dim) Store<kEach>(y, out + first);
  } else {
    SLUICE_UNROLL
    for (int32_t j = 0; j < kEach; ++j) {
      if (first + j < dim) out[first + j] = Narrow<T>(y.at[j]);
    }
  }
}

// Divides row `i` of the warp's sums by the sum of its weights, and excludes the own value.
template <bool kAligned, typename T, typename Sums>
__device__ void ExcludeOwnValue(const AttentionArgs<T>& args, const AttentionWork& work,
                                const QueryPlace& query, int32_t i, Sums& sums) {
  constexpr int32_t kBlocks = Sums::kBlocks;
  const int32_t dim = args.kv.head_dim;
  const float inverse = 1.0f / sums.sum(i);
  SLUICE_UNROLL
  for (int32_t n = 0; n < kBlocks; ++n) {
    for (float& y : sums.At(n, i)) y *= inverse;
  }
  if (args.xsa.form == XsaForm::kOff) return;
  Pack<T, 2> own[kBlocks];
  SLUICE_UNROLL
  for (int32_t n = 0; n < kBlocks; ++n) own[n] = {Narrow<T>(0.0f), Narrow<T>(0.0f)};
  if (query.visible > 0) {
    const KvRow<T> row = ValueOf(args, work, query.position);
    SLUICE_UNROLL
    for (int32_t n = 0; n < kBlocks; ++n) {
      const int32_t d = n * 8 + Lane() % 4 * 2;
      if constexpr (kAligned) {
        if (d < dim) own[n] = LoadWhole<Pack<T, 2>>(row.At(d));
      } else {
        SLUICE_UNROLL
        for (int32_t j = 0; j < 2; ++j) {
          if (d + j < dim) own[n].at[j] = *row.At(d + j);
        }
      }
    }
  }
  const auto y = [&](int32_t n) { return Floats<2>{{sums.At(n, i)[0], sums.At(n, i)[1]}}; };
  const auto v = [&](int32_t n) { return Floats<2>{{Widen(own[n].at[0]), Widen(own[n].at[1])}}; };
  const bool diagnostics = WantsDiagnostics(args.xsa);
  const XsaProducts products = {DotInBlocks<kBlocks>(y, v), DotInBlocks<kBlocks>(v, v),
                                diagnostics ? DotInBlocks<kBlocks>(y, y) : 0.0f};
  if (query.visible == 0) return;
  if (diagnostics && Lane() % 4 == 0) {
    WriteDiagnostics(args.xsa, products, int64_t{query.row} * args.q_heads + query.head);
  }
  const float factor = XsaFactor(args.xsa, products, query.head);
  SLUICE_UNROLL
  for (int32_t n = 0; n < kBlocks; ++n) {
    const Floats<2> each = v(n);
    SLUICE_UNROLL
    for (int32_t j = 0; j < 2; ++j) sums.At(n, i)[j] -= factor * each.at[j];
  }
}

// Writes the rows of a warp that has all features of its queries. The rows pass through `memory`,
// so that neighbouring lanes write neighbouring bytes.
template <bool kAligned, int32_t kDims, typename T, typename Sums>
__device__ void FinishRows(const AttentionArgs<T>& args, const AttentionWork& work,
                           const QueryPlace* queries, T* memory, Sums& sums) {
  const TurnedRows<T, kDims> rows = {memory};
  SLUICE_UNROLL
  for (int32_t i = 0; i < 2; ++i) {
    const int32_t r = Lane() / 4 + 8 * i;
    ExcludeOwnValue<kAligned>(args, work, LoadWhole<QueryPlace>(&queries[r]), i, sums);
  }
  SyncWarp();
  SLUICE_UNROLL
  for (int32_t i = 0; i < 2; ++i) {
    SLUICE_UNROLL
    for (int32_t n = 0; n < Sums::kBlocks; ++n) {
      const auto& y = sums.At(n, i);
      StoreWhole(Pack<T, 2>{{Narrow<T>(y[0]), Narrow<T>(y[1])}},
                 rows.At(Lane() / 4 + 8 * i, n * 8 + Lane() % 4 * 2));
    }
  }
  SyncWarp();
  const int32_t dim = args.kv.head_dim;
  constexpr int32_t kPerRow = kDims / kCopyElements<T>;
  SLUICE_ROLLED
  for (int32_t i = Lane(); i < kWarpQueries * kPerRow; i += kWarp) {
    const auto query = LoadWhole<QueryPlace>(&queries[i / kPerRow]);
    const int32_t d = i % kPerRow * kCopyElements<T>;
    if (query.visible == 0) continue;
    T* const out = args.out + (int64_t{query.row} * args.q_heads + query.head) * dim + d;
    const auto pack = LoadWhole<Pack<T>>(rows.At(i / kPerRow, d));
    if constexpr (kAligned) {
      if (d < dim) StoreWhole(pack, out);
    } else {
      SLUICE_UNROLL
      for (int32_t j = 0; j < kCopyElements<T>; ++j) {
        if (d + j < dim) out[j] = pack.at[j];
      }
    }
  }
}

// Writes the rows of a tile whose warps have a quarter of the features each. The sums pass through
// shared memory, so that each warp gets whole rows.
template <bool kAligned, typename T, typename Shared, typename Sums>
__device__ void FinishSharedRows(const AttentionArgs<T>& args, const AttentionWork& work,
                                 Shared& shared, const Sums& sums) {
  constexpr int32_t kEach = Shared::kDims / kWarp;
  SyncBlock();  // the memory is no longer used in other ways
  SLUICE_UNROLL
  for (int32_t i = 0; i < 2; ++i) sums.Write(i, shared.rows[Lane() / 4 + 8 * i]);
  SyncBlock();
  SLUICE_ROLLED
  for (int32_t r = Warp(); r < kWarpQueries; r += kAttentionWarps) {
    const float sum = Shuffle(r < 8 ? sums.sum(0) : sums.sum(1), r % 8 * 4);
    const auto query = LoadWhole<QueryPlace>(&shared.queries[r]);
    if (query.visible == 0) break;
    FinishRow<kAligned, kEach>(args, work, query, Load<kEach>(&shared.rows[r][Lane() * kEach]),
                               sum);
  }
}

}  // namespace sluice::kernels::cuda
