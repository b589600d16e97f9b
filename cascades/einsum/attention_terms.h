// Attention as a term: grouped queries, causal or not, optionally with exclusive self-attention
// (XSA).
//
//   TermPool pool;
//   const TermId y = AttentionTerm(pool, {.causal = true});
//
// The ranks are b (sequences), h (KV heads), g (query heads of a KV head), p (queries), m (keys), e
// (the width of queries and keys) and f (the width of values). The inputs are Q[b,p,h,g,e],
// K[b,m,h,e], V[b,m,h,f] and, with XSA, O[b,p,h,f], which is V at the queries' own positions. The
// last query is at the position of the last key.
#pragma once

#include <cstdint>
#include <vector>

#include "base/enum_names.h"
#include "cascades/einsum/rewrites.h"
#include "cascades/einsum/term_pool.h"

namespace sluice::einsum {

// The forms of z = y minus its part along v: g (y.u) u with u = v / |v|, or g (y.v) / |v|^2 v.
enum class XsaForm { kNone, kNorm, kSquared };

constexpr auto EnumNamesOf(XsaForm) {
  using enum XsaForm;
  return EnumNameTable<XsaForm>({{kNone, "none"}, {kNorm, "norm"}, {kSquared, "squared"}});
}

// The home of the keys and values that attention reads, and the bytes of each feature.
struct KvPlace {
  Home home = Home::kKv;
  double bytes_per_value = 4;
};

struct AttentionShape {
  bool causal = true;
  int64_t window = 0;   // admits only keys that are fewer than `window` positions away; 0 for all
  double scale = 1;     // of scores; 1 leaves it out
  double soft_cap = 0;  // of scores; 0 leaves it out
  bool bias = false;    // an input R[h,g,p,m] that is added to scores
  // Inputs T[h,g,p,m,e] and U[h,g,p,m,e], the rows of tables of relative positions for each query
  // and key. Their products with queries and with keys, times the scale, are added to scores. The
  // rows of a head's tables are in a near cache, so they cause no traffic.
  bool relative_keys = false;     // T
  bool relative_queries = false;  // U
  double silu_share = 0;          // weights are this times SiLU of scores; 0: their softmax
  bool query_gain = false;        // an input C[h,g] that multiplies scores
  XsaForm xsa = XsaForm::kNone;
  bool gate = false;  // an input W[h,g], g above
  KvPlace kv = {};
};

// Returns the term that divides the exponentials before it multiplies them by values: 3 passes.
TermId AttentionTerm(TermPool& pool, const AttentionShape& shape);

// Returns y, the result of attention, after XSA of this shape; y itself for kNone.
TermId ExcludeOwnValue(TermPool& pool, const AttentionShape& shape, TermId y);

// Returns the conditions of a window: m > p - window and, in both directions, m < p + window.
std::vector<Condition> WindowConditions(int64_t window, bool causal);

// Returns the condition that a causal query admits a key: m <= p, counted from the ends.
Condition CausalCondition();

// Returns the options of the rule that leaves out the self term. Requires that no value is zero.
OwnValue OwnValueOfAttention();

}  // namespace sluice::einsum
