// How many points of an einsum's ranks have a value.
#pragma once

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "engine/einsum/cascade.h"
#include "engine/einsum/interpreter.h"

namespace sluice::einsum {

// Returns the number of points at which the conditions hold and the operands with indices of more
// than one rank are within their shapes: the half of a square below a diagonal, a last chunk's
// part. Above about a million combinations of the other ranks of the conditions, returns the number
// of all points. `size_of` has the size of every rank.
double CountPoints(const Cascade& cascade, const Einsum& einsum, const Sizes& size_of);

}  // namespace sluice::einsum
