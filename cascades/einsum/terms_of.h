// Converts a cascade to terms, so that rules can rewrite it.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "cascades/einsum/cascade.h"
#include "cascades/einsum/lower.h"
#include "cascades/einsum/term_pool.h"

namespace sluice::einsum {

// A result that must be kept.
struct OutputTerm {
  Tensor tensor;
  TermId term;                   // its value, also at points that `where` excludes
  std::vector<Condition> where;  // on the tensor's ranks
};

struct CascadeTerms {
  // The results that are declared outside of tiles or that no einsum reads.
  std::vector<OutputTerm> outputs;
  std::vector<NamedTerm> reductions;  // all, by the names of their results
};

// Returns the terms, and declares the ranks and inputs in the pool, which is empty before. An
// einsum's conditions and its operands' conditions (CarryConditions) become conditions of its
// reductions, or of the output.
//
// Requires a cascade that Check accepts. Returns InvalidArgument, with the result's name, for parts
// that terms cannot express: an iteration; a result that is read at other places than single ranks
// of equal sizes; operands that lack values at different points, unless the merge is `and`; a merge
// that differs from MergeOf (lower_fuse.h) where an operand may lack a value; and an output with a
// rank that no operand has.
absl::StatusOr<CascadeTerms> TermsOf(TermPool& pool, const Cascade& cascade);

}  // namespace sluice::einsum
