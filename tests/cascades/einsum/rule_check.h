// Checks a rewrite on random sizes and values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cascades/einsum/rewrites.h"
#include "cascades/einsum/term_pool.h"
#include "tests/cascades/einsum/term_values.h"

namespace sluice::einsum {

struct RuleFinding {
  int applications = 0;
  // Empty if every application keeps the value.
  std::string counterexample = {};
};

// Applies the rule to each part of the term, and compares the values of the part and of its
// rewritten forms on random sizes and inputs: by the definition of terms, and by interpreting the
// cascade of the rewritten form.
RuleFinding CheckRule(TermPool& pool, const Rule& rule, TermId term, uint32_t seed);

// Returns random sizes of the attention's ranks, with no more tokens than context, and random
// values of all tensors that the terms read. O is V at the queries' own positions.
TermValues RandomValues(const TermPool& pool, const std::vector<TermId>& terms, uint32_t seed);

// Returns the values of the term, lowered and interpreted.
std::vector<double> Lowered(TermPool& pool, TermId term, const TermValues& values);

// Returns where two results differ by more than rounding, or nothing.
std::string Difference(const std::vector<double>& expected, const std::vector<double>& actual);

// Returns the term and all terms that it reads, each once.
std::vector<TermId> PartsOf(const TermPool& pool, TermId term);

}  // namespace sluice::einsum
