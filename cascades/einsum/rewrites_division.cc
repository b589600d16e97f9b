#include "cascades/einsum/rewrites.h"
#include "cascades/einsum/rewrites_match.h"

namespace sluice::einsum {
namespace {

// (a / b) x c = (a x c) / b
std::vector<TermId> DivideProduct(TermGraph& graph, const Term& node) {
  std::vector<TermId> equal;
  for (const Operands& product : ProductsOf(node)) {
    for (const Operands& ratio : MapsOf(graph, product.a, Op::kDivide)) {
      equal.push_back(
          graph.Map(Op::kDivide, graph.Map(Op::kMultiply, ratio.a, product.b), ratio.b));
    }
  }
  return equal;
}

// sum over r of a / b = (sum over r of a) / b
std::vector<TermId> DivideSum(TermGraph& graph, const Term& node) {
  if (!IsSum(node)) return {};
  std::vector<TermId> equal;
  for (const Operands& ratio : MapsOf(graph, node.args[0], Op::kDivide)) {
    if (graph.HasRank(ratio.b, node.rank)) continue;
    equal.push_back(
        graph.Map(Op::kDivide, graph.Reduce(Op::kAdd, node.rank, ratio.a, node.where), ratio.b));
  }
  return equal;
}

// (a / b) / c = (a / c) / b = a / (b x c)
std::vector<TermId> DivideQuotient(TermGraph& graph, const Term& node) {
  if (!IsMap(node, Op::kDivide)) return {};
  std::vector<TermId> equal;
  const TermId c = node.args[1];
  for (const Operands& ratio : MapsOf(graph, node.args[0], Op::kDivide)) {
    equal.push_back(graph.Map(Op::kDivide, graph.Map(Op::kDivide, ratio.a, c), ratio.b));
    equal.push_back(graph.Map(Op::kDivide, ratio.a, graph.Map(Op::kMultiply, ratio.b, c)));
  }
  return equal;
}

// a / d - b / d = (a - b) / d
std::vector<TermId> DivideDifference(TermGraph& graph, const Term& node) {
  if (!IsMap(node, Op::kSubtract)) return {};
  std::vector<TermId> equal;
  for (const Operands& left : MapsOf(graph, node.args[0], Op::kDivide)) {
    for (const Operands& right : MapsOf(graph, node.args[1], Op::kDivide)) {
      if (graph.Find(left.b) != graph.Find(right.b)) continue;
      equal.push_back(graph.Map(Op::kDivide, graph.Map(Op::kSubtract, left.a, right.a), left.b));
    }
  }
  return equal;
}

}  // namespace

std::vector<Rule> DivisionRules() {
  return {
      {"a division leaves a product", "always", DivideProduct},
      {"a division leaves a sum", "the divisor lacks the sum's rank", DivideSum},
      {"a difference is divided once", "both divisors are equal", DivideDifference},
  };
}

std::vector<Rule> QuotientRules() {
  return {{"divisors of a quotient change places or are multiplied", "always", DivideQuotient}};
}

}  // namespace sluice::einsum
