// Where a step quantises the rows that it multiplies by weights in int8 or int4.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/model.h"

namespace sluice {

// What an op does to rows that it writes or reads.
struct RowQuantization {
  bool quantizes = false;
  // [width], of the features of a row before it is quantised: 0 for channels that the layers which
  // read it keep, else 1. Empty if they keep none.
  std::vector<float> factors = {};
};

// Returns for each op of the graph whether it quantises rows: a norm or an activation those that it
// writes, in the same pass, and a layer those that it reads, where no op before it did. Layers that
// read the same rows and keep the same channels, such as q, k and v, share them quantised, so that
// a step has one set of quantised rows at a time.
std::vector<RowQuantization> PlanQuantization(const Model& model);

// Returns the widest rows that a layer of the model multiplies so, or 0.
int64_t WidestQuantizedRow(const Model& model);

}  // namespace sluice
