#include "cascades/einsum/lower_fuse.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>

namespace sluice::einsum {
namespace {

void InsertNames(const Index& index, std::set<std::string>* names) {
  for (const Index::Term& term : index.terms) names->insert(term.rank);
  if (!index.end_of.empty()) names->insert(index.end_of);
}

void InsertNames(const Einsum& einsum, std::set<std::string>* names) {
  for (const Index& index : einsum.out.indices) InsertNames(index, names);
  for (const Access& access : einsum.in) {
    for (const Index& index : access.indices) InsertNames(index, names);
  }
  for (const Condition& condition : einsum.where) {
    InsertNames(condition.left, names);
    InsertNames(condition.right, names);
  }
  for (const Reduction& reduction : einsum.reduce) names->insert(reduction.rank);
}

}  // namespace

FusedTerm Fuse(const TermPool& pool, TermId id, const std::function<bool(TermId)>& is_shared) {
  FusedTerm fused;
  Einsum& einsum = fused.einsum;
  TermId at = id;
  const auto is_inside = [&](TermId term) { return term == id || !is_shared(term); };
  const auto fits = [&](const Term& node) {
    if (node.kind != TermKind::kReduce) return false;
    if (!einsum.reduce.empty() && einsum.reduce[0].op != node.op) return false;
    // An outer condition or reduction with the same rank name means another rank.
    std::set<std::string> names;
    InsertNames(einsum, &names);
    return !names.contains(node.rank);
  };
  for (; is_inside(at) && fits(pool.TermOf(at)); at = pool.TermOf(at).args[0]) {
    const Term& node = pool.TermOf(at);
    einsum.reduce.push_back({node.rank, node.op});
    std::ranges::copy(node.where, std::back_inserter(einsum.where));
  }
  if (is_inside(at) && pool.TermOf(at).kind == TermKind::kUnary) {
    einsum.unary = pool.TermOf(at).function;
    at = pool.TermOf(at).args[0];
  }
  if (is_inside(at) && pool.TermOf(at).kind == TermKind::kMap) {
    einsum.map = pool.TermOf(at).op;
    einsum.map_merge = MergeOf(einsum.map);
    fused.in = pool.TermOf(at).args;
  } else {
    fused.in = {at};
  }
  return fused;
}

Merge MergeOf(Op op) {
  switch (op) {
    case Op::kMultiply:
    case Op::kDivide:
      return Merge::kAnd;
    case Op::kSubtract:
      return Merge::kLeft;
    case Op::kAdd:
    case Op::kMax:
    case Op::kMin:
      break;
  }
  return Merge::kOr;
}

Access AccessOf(std::string tensor, const std::vector<std::string>& ranks) {
  Access access{.tensor = std::move(tensor)};
  for (const std::string& rank : ranks) access.indices.push_back({.terms = {{rank}}});
  return access;
}

std::vector<Rank> RanksUsed(const TermPool& pool, const Cascade& cascade) {
  std::set<std::string> names;
  for (const Tensor& tensor : cascade.tensors)
    names.insert(tensor.ranks.begin(), tensor.ranks.end());
  for (const Statement& statement : cascade.statements) {
    if (const auto* einsum = std::get_if<Einsum>(&statement)) {
      InsertNames(*einsum, &names);
      continue;
    }
    const auto& iteration = std::get<Iteration>(statement);
    names.insert(iteration.rank);
    for (const Einsum& einsum : iteration.init) InsertNames(einsum, &names);
    for (const Einsum& einsum : iteration.body) InsertNames(einsum, &names);
  }
  std::vector<Rank> used;
  for (const Rank& rank : pool.ranks()) {
    if (names.contains(rank.name)) used.push_back(rank);
  }
  return used;
}

}  // namespace sluice::einsum
