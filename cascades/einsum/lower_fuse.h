// The part of a term that one einsum can compute.
#pragma once

#include <functional>
#include <vector>

#include "cascades/einsum/cascade.h"
#include "cascades/einsum/term.h"
#include "cascades/einsum/term_pool.h"

namespace sluice::einsum {

// An einsum without its accesses, and the terms that it reads.
struct FusedTerm {
  Einsum einsum;
  std::vector<TermId> in;
};

// Returns the greatest part of the term that is one einsum. `is_shared` returns whether a term must
// be a tensor of its own.
FusedTerm Fuse(const TermPool& pool, TermId id, const std::function<bool(TermId)>& is_shared);

// Returns the points that an operation on two tensors visits. A product or a quotient visits points
// with both operands, a difference points with its left operand, the others points with either.
Merge MergeOf(Op op);

// Returns the tensor at all points of the ranks.
Access AccessOf(std::string tensor, const std::vector<std::string>& ranks);

// Returns the names of the ranks of the cascade's indices, conditions and inputs.
std::vector<Rank> RanksUsed(const TermPool& pool, const Cascade& cascade);

}  // namespace sluice::einsum
