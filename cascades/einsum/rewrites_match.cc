#include "cascades/einsum/rewrites_match.h"

#include <utility>

namespace sluice::einsum {

bool IsMap(const Term& node, Op op) { return node.kind == TermKind::kMap && node.op == op; }

bool IsSum(const Term& node) { return node.kind == TermKind::kReduce && node.op == Op::kAdd; }

std::vector<Term> NodesOfKind(const TermGraph& graph, TermId id, TermKind kind) {
  std::vector<Term> nodes = graph.NodesOf(id);
  std::erase_if(nodes, [kind](const Term& node) { return node.kind != kind; });
  return nodes;
}

std::vector<Operands> MapsOf(const TermGraph& graph, TermId id, Op op) {
  std::vector<Operands> found;
  for (const Term& node : NodesOfKind(graph, id, TermKind::kMap)) {
    if (node.op == op) found.push_back({node.args[0], node.args[1]});
  }
  return found;
}

std::vector<Operands> ProductsOf(const Term& node) {
  if (!IsMap(node, Op::kMultiply)) return {};
  return {{node.args[0], node.args[1]}, {node.args[1], node.args[0]}};
}

std::vector<Operands> ProductsOf(const TermGraph& graph, TermId id) {
  std::vector<Operands> found;
  for (const Operands& product : MapsOf(graph, id, Op::kMultiply)) {
    found.push_back(product);
    found.push_back({product.b, product.a});
  }
  return found;
}

std::vector<TermId> ArgumentsOf(const TermGraph& graph, TermId id, Function function) {
  std::vector<TermId> found;
  for (const Term& node : NodesOfKind(graph, id, TermKind::kUnary)) {
    if (node.function == function) found.push_back(node.args[0]);
  }
  return found;
}

std::vector<Exponential> ExponentialsOf(const TermGraph& graph, TermId id) {
  std::vector<Exponential> found;
  for (const TermId exponent : ArgumentsOf(graph, id, Function::kExp)) {
    found.push_back({exponent, std::nullopt});
  }
  for (const Operands& product : ProductsOf(graph, id)) {
    for (const TermId exponent : ArgumentsOf(graph, product.a, Function::kExp)) {
      found.push_back({exponent, product.b});
    }
  }
  return found;
}

TermId Times(TermGraph& graph, TermId a, std::optional<TermId> factor) {
  return factor ? graph.Map(Op::kMultiply, a, *factor) : a;
}

std::vector<ShiftedExponential> ShiftedExponentialsOf(const TermGraph& graph, TermId id,
                                                      const std::string& rank) {
  std::vector<ShiftedExponential> found;
  for (const Exponential& exponential : ExponentialsOf(graph, id)) {
    for (const Operands& shift : MapsOf(graph, exponential.exponent, Op::kSubtract)) {
      for (Term& max : NodesOfKind(graph, shift.b, TermKind::kReduce)) {
        if (max.op == Op::kMax && max.rank == rank &&
            graph.Find(max.args[0]) == graph.Find(shift.a)) {
          found.push_back({shift.a, exponential.factor, std::move(max.where)});
        }
      }
    }
  }
  return found;
}

}  // namespace sluice::einsum
