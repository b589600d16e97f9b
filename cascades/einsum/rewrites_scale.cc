#include "cascades/einsum/rewrites.h"
#include "cascades/einsum/rewrites_match.h"

namespace sluice::einsum {
namespace {

// sum over r of a x b = (sum over r of a) x b
std::vector<TermId> HoistFactor(TermGraph& graph, const Term& node) {
  if (!IsSum(node)) return {};
  std::vector<TermId> equal;
  for (const Operands& product : ProductsOf(graph, node.args[0])) {
    if (graph.HasRank(product.b, node.rank)) continue;
    equal.push_back(graph.Map(Op::kMultiply,
                              graph.Reduce(Op::kAdd, node.rank, product.a, node.where), product.b));
  }
  return equal;
}

// Whether some form of the term is a tensor or a constant.
bool IsLeaf(const TermGraph& graph, TermId id) {
  return !NodesOfKind(graph, id, TermKind::kInput).empty() ||
         !NodesOfKind(graph, id, TermKind::kConstant).empty();
}

// (sum over r of a x b) x c = sum over r of (c x a) x b
std::vector<TermId> FoldScale(TermGraph& graph, const Term& node) {
  std::vector<TermId> equal;
  for (const Operands& product : ProductsOf(node)) {
    if (!IsLeaf(graph, product.b)) continue;
    for (const Term& sum : NodesOfKind(graph, product.a, TermKind::kReduce)) {
      if (!IsSum(sum) || graph.HasRank(product.b, sum.rank)) continue;
      for (const Operands& inside : MapsOf(graph, sum.args[0], Op::kMultiply)) {
        const TermId scaled = graph.Map(Op::kMultiply, product.b, inside.a);
        equal.push_back(graph.Reduce(Op::kAdd, sum.rank, graph.Map(Op::kMultiply, scaled, inside.b),
                                     sum.where));
      }
    }
  }
  return equal;
}

// c x (d x a) = (c d) x a
std::vector<TermId> MultiplyConstants(TermGraph& graph, const Term& node) {
  std::vector<TermId> equal;
  for (const Operands& outer : ProductsOf(node)) {
    for (const Term& c : NodesOfKind(graph, outer.a, TermKind::kConstant)) {
      for (const Operands& inner : ProductsOf(graph, outer.b)) {
        for (const Term& d : NodesOfKind(graph, inner.a, TermKind::kConstant)) {
          equal.push_back(graph.Map(Op::kMultiply, graph.Constant(c.value * d.value), inner.b));
        }
      }
    }
  }
  return equal;
}

// a / c = (1 / c) x a
std::vector<TermId> InvertConstant(TermGraph& graph, const Term& node) {
  if (!IsMap(node, Op::kDivide)) return {};
  std::vector<TermId> equal;
  for (const Term& divisor : NodesOfKind(graph, node.args[1], TermKind::kConstant)) {
    if (divisor.value == 0) continue;
    equal.push_back(graph.Map(Op::kMultiply, graph.Constant(1 / divisor.value), node.args[0]));
  }
  return equal;
}

}  // namespace

std::vector<Rule> ScaleRules() {
  return {
      {"a factor leaves a sum", "the factor lacks the sum's rank", HoistFactor},
      {"a scale is folded into an operand",
       "the scale is a tensor or a constant, and lacks the sum's rank", FoldScale},
      {"constants are multiplied", "both factors are constants", MultiplyConstants},
      {"a constant divisor becomes a factor", "the divisor is a constant other than 0",
       InvertConstant},
  };
}

}  // namespace sluice::einsum
