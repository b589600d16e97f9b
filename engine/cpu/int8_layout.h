// Where a step quantises the rows that it multiplies by weights in int8 or int4.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/model.h"
#include "kernels/cpu/profile.h"

namespace sluice {

// How an op quantises rows that it writes or reads.
struct RowQuantization {
  // The quantisation of the layers that read the rows; kNone if the op does not quantise rows.
  Quantization weights = Quantization::kNone;
  // [width], factors for the features of a row before it is quantised: 0 for channels that the
  // reading layers keep unquantised, else 1. Empty if they keep none.
  std::vector<float> factors = {};
};

// Returns the quantisation that each op of the graph does. A norm or an activation quantises the
// rows that it writes, in the same pass. A layer quantises the rows that it reads if no earlier op
// did. Layers that read the same rows, such as q, k and v, share the quantised rows if their
// weights have the same quantisation and they keep the same channels. A step therefore has one set
// of quantised rows at a time.
std::vector<RowQuantization> QuantizationOfOps(const Model& model);

// Returns the bytes of the largest quantised rows that a layer reads in a step of `tokens` tokens,
// or 0.
int64_t QuantizedRowBytes(const Model& model, kernels::Profile profile, int64_t tokens);

}  // namespace sluice
