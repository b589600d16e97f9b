#include "cascades/einsum/term_graph.h"

#include <algorithm>
#include <utility>

#include "base/ceil_div.h"

namespace sluice::einsum {

bool TermGraph::HasRank(TermId id, const std::string& rank) const {
  return std::ranges::find(RanksOf(id), rank) != RanksOf(id).end();
}

TermId TermGraph::Constant(double value) {
  return Add({.kind = TermKind::kConstant, .value = value});
}

TermId TermGraph::Unary(Function function, TermId a) {
  return Add({.kind = TermKind::kUnary, .args = {a}, .function = function});
}

TermId TermGraph::Map(Op op, TermId a, TermId b) {
  return Add({.kind = TermKind::kMap, .args = {a, b}, .op = op});
}

TermId TermGraph::Reduce(Op op, std::string rank, TermId a, std::vector<Condition> where) {
  return Add({.kind = TermKind::kReduce,
              .args = {a},
              .op = op,
              .rank = std::move(rank),
              .where = std::move(where)});
}

TermId TermGraph::Fold(std::string rank, TermId a, TermId b) {
  return Add({.kind = TermKind::kFold, .args = {a, b}, .rank = std::move(rank)});
}

TermId TermGraph::Merge(std::string rank, TermId a, TermId b) {
  return Add({.kind = TermKind::kMerge, .args = {a, b}, .rank = std::move(rank)});
}

TermId Split(TermGraph& graph, const Partition& partition, TermId a) {
  const Size whole = graph.RankOf(partition.rank).size;
  const Size outer = whole.symbol.empty() ? Size{"", CeilDiv(whole.divisor, partition.chunk)}
                                          : Size{whole.symbol, whole.divisor * partition.chunk};
  graph.DeclareRank({partition.outer, outer});
  graph.DeclareRank({partition.inner, {"", partition.chunk}});
  return graph.Add({.kind = TermKind::kSplit,
                    .args = {a},
                    .rank = partition.rank,
                    .outer = partition.outer,
                    .inner = partition.inner,
                    .chunk = partition.chunk});
}

Index SplitIndex(const Partition& partition, Index index) {
  std::vector<Index::Term> terms;
  for (Index::Term& term : index.terms) {
    if (term.rank == partition.rank) {
      terms.push_back({partition.outer, term.factor * partition.chunk});
      terms.push_back({partition.inner, term.factor});
    } else {
      terms.push_back(std::move(term));
    }
  }
  index.terms = std::move(terms);
  return index;
}

std::vector<Condition> SplitConditions(const Partition& partition, std::vector<Condition> where) {
  for (Condition& condition : where) {
    condition.left = SplitIndex(partition, std::move(condition.left));
    condition.right = SplitIndex(partition, std::move(condition.right));
  }
  return where;
}

}  // namespace sluice::einsum
