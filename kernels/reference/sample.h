// Top-k, edits and sampling of one row of logits, in double. A row to sample from has at least one
// finite logit; the others are finite or -inf.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sampling.h"

namespace sluice::kernels::reference {

// Returns the indices of the k largest values in descending order; equal values by ascending index,
// NaN last.
std::vector<int32_t> TopK(std::span<const double> x, int64_t k);

// Returns the edited logits. The token is drawn from them.
std::vector<double> Edit(std::span<const double> logits, const LogitEdits& edits);

// The tokens that the filters of `params` keep.
struct Distribution {
  std::vector<int32_t> ids;     // in the order in which a draw inverts the distribution
  std::vector<double> weights;  // >= 0, not normalised
};
// Requires temperature > 0.
Distribution Filter(std::span<const double> logits, const SampleParams& params);

// Returns the uniform random number in [0, 1) for the draw.
double Uniform(const SampleParams& params);

// Returns the token drawn with `params`; the most likely one at temperature 0.
int32_t Sample(std::span<const double> logits, const SampleParams& params);

}  // namespace sluice::kernels::reference
