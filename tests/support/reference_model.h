// Executes a model's graph for one sequence in double, op by op on kernels/reference: the truth
// that backends are compared with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/model.h"

namespace sluice::testing {

struct ReferenceAnswer {
  std::vector<double> logits;                      // [length, vocab]
  std::vector<double> xsa_cos_sim, xsa_proj_frac;  // [layers, length, heads]; 0 without XSA
};

// `tokens` are at positions 0, 1, ... A tensor that is missing is a broken invariant.
ReferenceAnswer RunReference(const Model& model, std::span<const int32_t> tokens);

}  // namespace sluice::testing
