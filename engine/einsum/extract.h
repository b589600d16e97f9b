// The terms that a class of an EGraph stands for.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/einsum/egraph.h"
#include "engine/einsum/term.h"
#include "engine/einsum/term_pool.h"

namespace sluice::einsum {

struct Variants {
  std::vector<TermId> terms;  // in the pool, in the order of their texts
  bool complete = true;       // false if there are more than the limit
};

// Returns the terms of the class in which one node was chosen for each class that is used, the same
// wherever the class is used. A term with a kSplit is left out: a rewrite has pushed it down.
Variants VariantsOf(const EGraph& graph, TermPool& pool, TermId id, int64_t limit);

// Returns the first of `terms` that has the lowest cost. Requires a term.
TermId Cheapest(const std::vector<TermId>& terms, const std::function<double(TermId)>& cost);

}  // namespace sluice::einsum
