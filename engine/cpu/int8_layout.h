// Where a step quantises the rows that it multiplies by weights in int8 or int4.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/model.h"

namespace sluice {

// What an op does to rows that it writes or reads.
struct RowQuantization {
  Quantization weights = Quantization::kNone;  // those for which it quantises the rows, if it does
  // [width], of the features of a row before it is quantised: 0 for channels that the layers which
  // read it keep, else 1. Empty if they keep none.
  std::vector<float> factors = {};
};

// Returns for each op of the graph what it does: a norm or an activation quantises rows that it
// writes, in the same pass, and a layer those that it reads, where no op before it did. Layers that
// read the same rows, such as q, k and v, share them quantised, if their weights are quantised
// alike and they keep the same channels, so that a step has one set of quantised rows at a time.
std::vector<RowQuantization> QuantizationOfOps(const Model& model);

// Returns the widest rows that a layer of the model multiplies so, or 0.
int64_t WidestQuantizedRow(const Model& model);

}  // namespace sluice
