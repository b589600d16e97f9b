// The layers of a gated MLP that one kernel may compute (kernels/cuda/gated_projection.h).
#pragma once

#include <cstddef>
#include <optional>

#include "engine/model/graph.h"

namespace sluice {

// Three ops in a row, in this order: out of `activation` = f(out of `gate`) * out of `up`.
struct GatedLayers {
  const LinearOp& gate;
  const LinearOp& up;
  const ActivationOp& activation;
};

// Returns the layers that begin with op `first`, if
// - both layers read the same rows, with matrices of the same shape and number, and do not
//   accumulate,
// - the activation writes to the buffer of `up`, and
// - no op but such activations reads the buffer of `gate`, so that it need not be written.
std::optional<GatedLayers> GatedLayersAt(const Graph& graph, size_t first);

}  // namespace sluice
