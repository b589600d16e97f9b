// FindLiveRanks says which places of a cascade's results have to be kept at a time.
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
//   - it is summed up over another rank along which an operand, of which one place is live, lacks
//     the rank: A[p, m] goes through m once, so that Y[p, f] = A[p, m] . V[m, f] is summed for
//     all f at a time,
//   - it is carried by an iteration of which an einsum lacks the rank, so that the rank's loop is
//     not outside of the iteration.
void FindLiveRanks(const Cascade& cascade, const Sizes& size_of, std::vector<TensorFacts>* tensors);

}  // namespace sluice::einsum
