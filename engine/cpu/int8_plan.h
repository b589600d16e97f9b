// Where a step quantises the rows that it multiplies by weights in int8 or int4.
#pragma once

#include <vector>

#include "engine/model/model.h"

namespace sluice {

// Returns for each op of the graph the weights for which it quantises rows, or kNone: a norm or an
// activation those that it writes, in the same pass, and a layer those that it reads, where no op
// before it did. Layers that read the same rows, such as q, k and v, share them quantised, if their
// weights are quantised alike, so that a step has one set of quantised rows at a time.
std::vector<Quantization> PlanQuantization(const Model& model);

// Returns the widest rows that a layer of the model multiplies so, or 0.
int64_t WidestQuantizedRow(const Model& model);

}  // namespace sluice
