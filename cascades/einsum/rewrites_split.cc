#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "cascades/einsum/rewrites.h"
#include "cascades/einsum/rewrites_match.h"

namespace sluice::einsum {
namespace {

// Returns `node`, an argument of a split, with the split moved to its own arguments.
TermId SplitNode(TermGraph& graph, const Partition& partition, Term node) {
  for (TermId& arg : node.args) {
    if (graph.HasRank(arg, partition.rank)) arg = Split(graph, partition, arg);
  }
  for (Index& index : node.access.indices) index = SplitIndex(partition, std::move(index));
  node.where = SplitConditions(partition, std::move(node.where));
  return graph.Add(std::move(node));
}

std::vector<TermId> PushSplit(TermGraph& graph, const Term& node) {
  if (node.kind != TermKind::kSplit) return {};
  const TermId arg = node.args[0];
  if (!graph.HasRank(arg, node.rank)) return {arg};
  const Partition partition{node.rank, node.outer, node.inner, node.chunk};
  std::vector<TermId> equal;
  for (Term& inside : graph.NodesOf(arg)) {
    if (inside.kind == TermKind::kSplit) continue;  // it is pushed down first
    equal.push_back(SplitNode(graph, partition, std::move(inside)));
  }
  return equal;
}

}  // namespace

std::vector<Rule> SplitRules() {
  return {{"a split reaches the inputs", "the split rank is free in the operation", PushSplit}};
}

TermId PushSplits(TermGraph& graph, TermId id) {
  std::unordered_map<TermId, TermId> known;
  const auto push = [&](const auto& self, TermId term) -> TermId {
    if (const auto found = known.find(term); found != known.end()) return found->second;
    const std::vector<Term> nodes = graph.NodesOf(term);
    SLUICE_CHECK(nodes.size() == 1);
    Term node = nodes[0];
    for (TermId& arg : node.args) arg = self(self, arg);
    if (node.kind != TermKind::kSplit) return known[term] = graph.Add(std::move(node));
    const std::vector<TermId> pushed = PushSplit(graph, node);
    SLUICE_CHECK(pushed.size() == 1);
    const TermId result = self(self, pushed[0]);
    return known[term] = result;
  };
  return push(push, id);
}

}  // namespace sluice::einsum
