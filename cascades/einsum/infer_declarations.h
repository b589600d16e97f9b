// The ranks and tensors of a cascade in the paper's notation, which declares none.
#pragma once

#include "absl/status/status.h"
#include "cascades/einsum/cascade.h"

namespace sluice::einsum {

// Declares all ranks and tensors of a cascade that declares none. A rank has its own name as its
// size. Inputs, and results that no einsum reads, are in the arena; other results are in tiles.
// Returns InvalidArgument, with its name, if an input is never read at single ranks, because its
// own ranks are then unknown.
absl::Status InferDeclarations(Cascade* cascade);

}  // namespace sluice::einsum
