// Checks a model's weights without reading their values.
#pragma once

#include "absl/status/status.h"
#include "engine/model/model.h"

namespace sluice {

// Returns the error that a backend would return for a tensor of the graph that is missing or has
// another shape or dtype. It names the tensor.
absl::Status CheckTensors(const Model& model);

}  // namespace sluice
