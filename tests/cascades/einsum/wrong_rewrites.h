// Rewrites with one error each.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cascades/einsum/rewrites.h"
#include "cascades/einsum/rewrites_match.h"
#include "cascades/einsum/term_graph.h"
#include "cascades/einsum/term_pool.h"

namespace sluice::einsum {

using Terms = std::vector<TermId>;

struct WrongRow {
  const char* name;
  const char* rule;  // the beginning of the name of the right rule
  std::function<TermId(TermPool&)> term;
  decltype(Rule::apply) apply;
  // Whether its result has other ranks, so that no value is needed to see the error.
  bool changes_ranks = false;
  // Whether the right rule correctly applies to the term.
  bool right_rule_applies = false;
};

// Returns wrong versions of the rules for sums, products, quotients and constants.
std::vector<WrongRow> WrongRewritesOfProducts();
// Returns wrong versions of the rules for softmax, its chunks, exclusion and the division of ranks.
std::vector<WrongRow> WrongRewritesOfSoftmax();

inline TermId TensorOf(TermPool& pool, const std::string& name, std::vector<std::string> ranks) {
  return pool.Input({.name = name, .ranks = std::move(ranks)});
}

inline TermId SumOf(TermGraph& graph, const std::string& rank, TermId a,
                    std::vector<Condition> where = {}) {
  return graph.Reduce(Op::kAdd, rank, a, std::move(where));
}

}  // namespace sluice::einsum
