// Executes a model's graph for one sequence in double, op by op on kernels/reference: the truth
// that backends are compared with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/model.h"

namespace sluice::testing {

struct ReferenceAnswer {
  std::vector<double> logits;                      // [length, vocab]; none without a head
  std::vector<double> output;                      // [length, hidden], after the last norm
  std::vector<double> xsa_cos_sim, xsa_proj_frac;  // [layers, length, heads]; 0 without XSA
};

// `tokens` are at positions first_position, first_position + 1, ..., which learned positions, rope
// and position-wise layers see. A negative token's row is that of `inputs` [length, input_width]. A
// tensor that is missing is a broken invariant.
ReferenceAnswer RunReference(const Model& model, std::span<const int32_t> tokens,
                             int32_t first_position = 0, std::span<const float> inputs = {});

}  // namespace sluice::testing
