// Executes a model's graph for one sequence in double precision, op by op with kernels/reference.
// Tests compare backends with it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/model.h"

namespace sluice::testing {

struct ReferenceAnswer {
  std::vector<double> logits;                      // [length, vocab]; empty without a head
  std::vector<double> output;                      // [length, hidden], after the last norm
  std::vector<double> xsa_cos_sim, xsa_proj_frac;  // [layers, length, heads]; 0 without XSA
};

// Runs the model. `tokens` are at positions first_position, first_position + 1, ..., which learned
// positions, RoPE and position-wise layers use. A negative token takes its row from `inputs`
// [length, input_width]. Without `types` all tokens have type 0. A missing tensor fails a CHECK.
ReferenceAnswer RunReference(const Model& model, std::span<const int32_t> tokens,
                             int32_t first_position = 0, std::span<const float> inputs = {},
                             std::span<const int32_t> types = {});

}  // namespace sluice::testing
