// Top-k, edits and sampling of one row of logits, in double. Of those that are drawn from, one is
// finite and the others are finite or -inf.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sampling.h"

namespace sluice::kernels::reference {

// Indices of the k largest in descending order, of equal ones the lower index first, NaN last.
std::vector<int32_t> TopK(std::span<const double> x, int64_t k);

// The logits that a token is drawn from.
std::vector<double> Edit(std::span<const double> logits, const LogitEdits& edits);

// What the filters of `params` leave.
struct Distribution {
  std::vector<int32_t> ids;     // in the order in which a draw inverts them
  std::vector<double> weights;  // positive or zero, not normalised
};
// Requires temperature > 0.
Distribution Filter(std::span<const double> logits, const SampleParams& params);

// The uniform number in [0, 1) of a draw.
double Uniform(const SampleParams& params);

// The token that `params` draw; greedy at temperature 0.
int32_t Sample(std::span<const double> logits, const SampleParams& params);

}  // namespace sluice::kernels::reference
