// Terms: the value of a cascade as one expression. Rewrites transform terms.
//
// Terms are immutable and hash-consed: TermPool returns the same TermId for equal terms. A term is
// therefore a graph, and a part that is used twice is one node. Ranks are named; an operation on
// two terms broadcasts over the ranks that only one of them has, and a reduction removes one rank.
//
//   TermPool pool;
//   const TermId s = pool.Reduce(Op::kAdd, "e", pool.Map(Op::kMultiply, q, k));
//   const Cascade cascade = Lower(pool, {{"S", s}});
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cascades/einsum/cascade.h"

namespace sluice::einsum {

using TermId = int32_t;

enum class TermKind {
  kInput,     // a tensor, at `access`
  kConstant,  // `value`
  kUnary,     // function(a)
  kMap,       // a op b
  kReduce,    // op over `rank` of a, at the points where `where` holds
  // a, in which `rank` is rewritten as outer * chunk + inner. A rewrite pushes it down to inputs,
  // where it becomes an index.
  kSplit,
  // sum over `rank` of exp(a - max over rank of a) b, one point of the rank after another: the
  // running maximum m, and y <- y exp(m - m') + b exp(a - m'). No second pass over the rank.
  kFold,
  // The same value in the same order, from partials that workers computed separately and left in
  // the arena: all points of `rank` in parallel, then one fold over them.
  kMerge,
};

struct Term {
  TermKind kind;
  std::vector<TermId> args = {};
  Op op = Op::kAdd;
  Function function = Function::kNone;
  std::string rank = {};   // of kReduce, kSplit, kFold and kMerge
  std::string outer = {};  // of kSplit
  std::string inner = {};
  int64_t chunk = 0;
  Access access = {};  // of kInput
  double value = 0;    // of kConstant
  std::vector<Condition> where = {};

  bool operator==(const Term&) const = default;
};

}  // namespace sluice::einsum
