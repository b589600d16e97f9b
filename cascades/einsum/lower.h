// Converts terms to cascades: the einsums that are computed, and their order.
//
// A reduction over a function of an operation on two tensors is one einsum. A term that is used
// more than once becomes a tensor with a name, and is computed once. Streams (kFold and kMerge)
// over the same rank and the same maxima share one iteration, which also computes a kReduce for
// their maximum: the numerator and the denominator of a softmax take one pass together. The inputs
// of a kFold at one point of its rank are computed within its iteration.
#pragma once

#include <string>
#include <vector>

#include "cascades/einsum/cascade.h"
#include "cascades/einsum/term.h"
#include "cascades/einsum/term_pool.h"

namespace sluice::einsum {

struct NamedTerm {
  std::string name;
  TermId term;
};

// Returns a cascade named `name` with one tensor for each output. Terms in `hints` get these names
// if they become tensors; other names are generated.
Cascade Lower(TermPool& pool, std::vector<NamedTerm> outputs, std::string name = "",
              std::vector<NamedTerm> hints = {});

}  // namespace sluice::einsum
