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

// The value of a position, which XSA excludes. Each lane holds kEach features.
template <int32_t kEach>
struct OwnValue {
  int32_t position = -1;
  Floats<kEach> v;
  float square;  // v . v
};

template <int32_t kEach>
__device__ float Dot(const Floats<kEach>& a, const Floats<kEach>& b) {
  float sum = 0;
  SLUICE_UNROLL
  for (int32_t j = 0; j < kEach; ++j) sum = fmaf(a.at[j], b.at[j], sum);
  return LaneReduce(sum, Plus());
}

// Reads this lane's features of a row. Features beyond the row are zeros.
template <bool kAligned, int32_t kEach, typename T>
__device__ Floats<kEach> ReadRow(const T* row, int32_t dim) {
  const int32_t first = Lane() * kEach;
  if constexpr (kAligned) {
    if (first < dim) return Load<kEach>(row + first);
    return {};
  } else {
    Floats<kEach> values = {};
    SLUICE_UNROLL
    for (int32_t j = 0; j < kEach; ++j) {
      if (first + j < dim) values.at[j] = Widen(row[first + j]);
    }
    return values;
  }
}

// Divides the sums y of a query by the sum of its weights, excludes the own value and writes the
// row. `own` is the own value of a query of the same sequence and KV head.
template <bool kAligned, int32_t kEach, typename T>
__device__ void FinishRow(const AttentionArgs<T>& args, const AttentionWork& work,
                          const QueryPlace& query, Floats<kEach> y, float sum,
                          OwnValue<kEach>& own) {
  const int32_t dim = args.kv.head_dim, first = Lane() * kEach;
  const int64_t place = int64_t{query.row} * args.q_heads + query.head;
  const float inverse = 1.0f / sum;
  SLUICE_UNROLL
  for (int32_t j = 0; j < kEach; ++j) y.at[j] *= inverse;
  if (args.xsa.form != XsaForm::kOff) {
    if (own.position != query.position) {
      own.position = query.position;
      own.v = ReadRow<kAligned, kEach>(args.kv.v + OffsetOf(args, work, query.position), dim);
      own.square = Dot(own.v, own.v);
    }
    const bool diagnostics = WantsDiagnostics(args.xsa);
    const XsaProducts products = {Dot(y, own.v), own.square, diagnostics ? Dot(y, y) : 0.0f};
    if (diagnostics && Lane() == 0) WriteDiagnostics(args.xsa, products, place);
    const float factor = XsaFactor(args.xsa, products, query.head);
    SLUICE_UNROLL
    for (int32_t j = 0; j < kEach; ++j) y.at[j] -= factor * own.v.at[j];
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

// Writes the rows of a warp. The sums pass through the memory of the warp's queries, so that the
// lanes of the warp get neighbouring features of one row.
template <bool kAsync, typename T, typename Shared, typename Sums>
__device__ void FinishRows(const AttentionArgs<T>& args, const AttentionWork& work, Shared& shared,
                           Sums& sums) {
  constexpr int32_t kEach = Shared::kDims / kWarp, kStride = Shared::kDims + 8, kRows = 8;
  static_assert(kRows * kStride * sizeof(float) <= kWarpQueries * sizeof(shared.q[0]));
  auto* const stage = reinterpret_cast<float(*)[kStride]>(&shared.q[Warp() * kWarpQueries]);
  OwnValue<kEach> own;
  SLUICE_UNROLL
  for (int32_t i = 0; i < 2; ++i) {
    SyncWarp();
    sums.Write(i, stage[Lane() / 4]);
    SyncWarp();
    SLUICE_ROLLED
    for (int32_t r = 0; r < kRows; ++r) {
      const float sum = Shuffle(sums.sum(i), 4 * r);
      const auto query =
          LoadWhole<QueryPlace>(&shared.queries[Warp() * kWarpQueries + kRows * i + r]);
      if (query.visible == 0) break;
      FinishRow<kAsync, kEach>(args, work, query, Load<kEach>(&stage[r][Lane() * kEach]), sum, own);
    }
  }
}

}  // namespace sluice::kernels::cuda
