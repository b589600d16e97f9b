// The shapes that rewrites look for. Each function returns every way in which the term has the
// shape, in a fixed order.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cascades/einsum/cascade.h"
#include "cascades/einsum/term.h"
#include "cascades/einsum/term_graph.h"

namespace sluice::einsum {

struct Operands {
  TermId a;
  TermId b;
};

bool IsMap(const Term& node, Op op);
bool IsSum(const Term& node);  // a kReduce by kAdd

// Returns the nodes of the term that are `kind`.
std::vector<Term> NodesOfKind(const TermGraph& graph, TermId id, TermKind kind);
// Returns the operands of a op b.
std::vector<Operands> MapsOf(const TermGraph& graph, TermId id, Op op);
// Returns the factors of a x b, in both orders.
std::vector<Operands> ProductsOf(const TermGraph& graph, TermId id);
// Returns the factors of a product, in both orders, or nothing.
std::vector<Operands> ProductsOf(const Term& node);
// Returns the arguments of the function.
std::vector<TermId> ArgumentsOf(const TermGraph& graph, TermId id, Function function);

// exp(exponent) x factor, or exp(exponent) only.
struct Exponential {
  TermId exponent;
  std::optional<TermId> factor;
};
std::vector<Exponential> ExponentialsOf(const TermGraph& graph, TermId id);

// Returns `a` times the factor, if there is one.
TermId Times(TermGraph& graph, TermId a, std::optional<TermId> factor);

// exp(score - max over the rank of score) x factor.
struct ShiftedExponential {
  TermId score;
  std::optional<TermId> factor;
  std::vector<Condition> where;  // of the maximum
};
std::vector<ShiftedExponential> ShiftedExponentialsOf(const TermGraph& graph, TermId id,
                                                      const std::string& rank);

}  // namespace sluice::einsum
