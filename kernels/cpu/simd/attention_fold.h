// Computes outputs from the sums over all segments, with XSA. Included by attention.h; see vec.h.
#pragma once

#include "kernels/cpu/simd/attention_segment.h"
#include "kernels/cpu/simd/dot.h"

namespace sluice::kernels::SLUICE_SIMD_NAMESPACE {

// The value of a row's own position, which XSA excludes.
struct OwnValue {
  const float* v;        // [head_dim]
  float norm;            // |v|
  float inverse_square;  // 1 / |v|^2, bounded by eps according to the form of XSA
  bool bounded;          // whether the bound applied
};

// Returns a row's own value in f32: the stored value, or a widened copy in the scratch memory.
SLUICE_INLINE const float* OwnFloats(const simd::AttentionBlock& block, int32_t row) {
  const int64_t head_dim = block.kv->head_dim, position = block.first_position + row;
  float* const room = block.own_values + row * head_dim;
  const KvElement* const slab = ValuesOf(block) + PageBase(block, position / kPageTokens);
  const float* const scales = KvPages::ScalesOf(slab, head_dim);
  const float scale = scales != nullptr ? scales[position % kPageTokens] : 1.0f;
  return KvPages::WidenAll(ValueAt(block, position), head_dim, scale, room);
}

// Returns an own value v with |v| = norm.
SLUICE_INLINE OwnValue OwnValueOf(const simd::AttentionBlock& block, const float* v, float norm) {
  const float eps = block.xsa_eps;
  if (block.xsa == XsaForm::kNorm) {  // divided twice, because eps^2 could vanish
    const float divisor = norm > eps ? norm : eps;
    return {v, norm, 1.0f / divisor / divisor, norm <= eps};
  }
  const float square = norm * norm;
  return {v, norm, 1.0f / (square > eps ? square : eps), square <= eps};
}

// Computes the diagnostics from the sums y, which do not include the share `self` of the row's own
// value yet. The share is added before anything is squared, because sum and share may nearly
// cancel.
static void Diagnose(const simd::AttentionBlock& block, const Query& query, const OwnValue& own,
                     float self, float inverse) {
  constexpr float kEps = 1e-6f;
  const int64_t at = block.rows[query.row] * block.diagnostics_stride + query.head;
  float dot = 0.0f, square = 0.0f;
  for (int64_t d = 0; d < block.kv->head_dim; ++d) {
    const float y = FmaScalar(self, own.v[d], query.running[d]);
    dot = FmaScalar(y, own.v[d], dot);
    square = FmaScalar(y, y, square);
  }
  const float cos_sim = inverse * __builtin_fabsf(dot) / (own.norm > kEps ? own.norm : kEps);
  const float length = inverse * __builtin_sqrtf(square);
  if (block.cos_sim != nullptr) block.cos_sim[at] = cos_sim;
  if (block.proj_frac != nullptr) block.proj_frac[at] = cos_sim / (length > kEps ? length : kEps);
}

// Returns the factor of the row's own value, which is added to the sums y of all other values: its
// share `self` minus the gated projection of the whole onto it. Without a gate the share cancels,
// so that no accuracy is lost if a row attends mostly to itself.
SLUICE_INLINE float OwnShare(const simd::AttentionBlock& block, const Query& query,
                             const OwnValue& own, float self, float inverse) {
  if (block.cos_sim != nullptr || block.proj_frac != nullptr) {
    Diagnose(block, query, own, self, inverse);
  }
  const float dot = Dot(query.running, own.v, block.kv->head_dim);
  if (block.xsa_gate == nullptr && !own.bounded) return -dot * own.inverse_square;
  const float gate = block.xsa_gate != nullptr ? block.xsa_gate[query.head] : 1.0f;
  const float whole = dot + self * (own.norm * own.norm);
  return self - gate * whole * own.inverse_square;
}

// Writes out = (y + share * v) * inverse, where y are the running sums; `v` may be nullptr.
SLUICE_INLINE void WriteOut(const Query& query, const float* v, float share, float inverse,
                            int64_t head_dim) {
  int64_t d = 0;
  for (; d + kLanes <= head_dim; d += kLanes) {
    VecF y = Load(query.running + d);
    if (v != nullptr) y = Fma(Broadcast(share), Load(v + d), y);
    Store(query.out + d, y * inverse);
  }
  for (; d < head_dim; ++d) {
    const float y = v != nullptr ? FmaScalar(share, v[d], query.running[d]) : query.running[d];
    query.out[d] = y * inverse;
  }
}

// Writes the output of a query whose running sums cover all its segments. `own` belongs to the
// query's row and is read only with XSA. With causal XSA the sums do not include the own value.
SLUICE_INLINE void Finish(const simd::AttentionBlock& block, const Query& query,
                          const OwnValue& own) {
  const int64_t head_dim = block.kv->head_dim;
  const float inverse = 1.0f / query.running[head_dim + simd::kRecordSum];
  if (block.xsa == XsaForm::kOff) {
    WriteOut(query, nullptr, 0.0f, inverse, head_dim);
    return;
  }
  const float self = query.running[head_dim + simd::kRecordOwn];
  WriteOut(query, own.v, OwnShare(block, query, own, self, inverse), inverse, head_dim);
}

}  // namespace sluice::kernels::SLUICE_SIMD_NAMESPACE
