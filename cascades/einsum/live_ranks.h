// FindLiveRanks finds the places of a cascade's results that must be kept at the same time.
#pragma once

#include <string>
#include <vector>

#include "cascades/einsum/analysis.h"
#include "cascades/einsum/cascade.h"
#include "cascades/einsum/interpreter.h"

namespace sluice::einsum {

// Returns the number of places that the ranks span. `size_of` has the size of each rank.
double PlacesOf(const std::vector<std::string>& ranks, const Sizes& size_of);

// Sets live_ranks, live_bytes and replaces of those tensors that are results of the cascade.
//
// A result is live along a rank if
//   - a reader waits for the end of a pass over the rank's family,
//   - it is summed over another rank, and an operand with one live place along that rank lacks the
//     rank of the result: A[p, m] is computed once along m, so Y[p, f] = A[p, m] . V[m, f] is
//     summed for all f at the same time,
//   - an iteration carries it and has an einsum that lacks the rank, so that the rank's loop is not
//     outside of the iteration.
void FindLiveRanks(const Cascade& cascade, const Sizes& size_of, std::vector<TensorFacts>* tensors);

}  // namespace sluice::einsum
