// The terms that a class of an EGraph stands for.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cascades/einsum/egraph.h"
#include "cascades/einsum/term.h"
#include "cascades/einsum/term_pool.h"

namespace sluice::einsum {

struct Variants {
  std::vector<TermId> terms;  // in the pool, in the order of their texts
  bool complete = true;       // false if there are more than the limit
};

// Returns the terms of the class in which one node was chosen for each class that is used, the same
// wherever the class is used. A term with a kSplit is left out: a rewrite has pushed it down.
Variants VariantsOf(const EGraph& graph, TermPool& pool, TermId id, int64_t limit);

struct PricedTerm {
  TermId term;
  double cost;
};

// Returns the first of `terms` that has the lowest cost. Requires a term.
PricedTerm Cheapest(const std::vector<TermId>& terms, const std::function<double(TermId)>& cost);

struct Optimized {
  TermId term;
  double cost = 0;
  int64_t compared = 0;  // terms, of all stages
  bool complete = true;  // false if a stage had more variants than the limit, or did not saturate
};

// Returns the cheapest term of the first stage's rules, continues from it with the second stage,
// and so on. The choices of different stages do not multiply, unlike in VariantsOf. An infinite
// cost excludes a term; if all terms have one, the result has an infinite cost too. Requires a
// stage.
Optimized Optimize(TermPool& pool, TermId term, const std::vector<std::vector<Rule>>& stages,
                   int64_t limit, const std::function<double(TermId)>& cost);

// Returns the rules of AllRules in three stages: scales; divisions and projections; chunks. The
// rules of quotients are left out: they make only single numbers of a query cheaper, and lead to
// many more variants.
std::vector<std::vector<Rule>> StagesOf(const RuleOptions& options);

}  // namespace sluice::einsum
