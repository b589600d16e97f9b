// The reference of diverse selection (kernels/diversity.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::kernels::reference {

// Returns the places of `count` of the candidates in the order in which they are chosen. `vectors`
// is [scores.size(), width]. What the chosen ones leave of a candidate is found by elimination,
// from the beginning for each.
std::vector<int32_t> ChooseDiverse(std::span<const double> scores, std::span<const double> vectors,
                                   int64_t width, double diversity, int64_t count);

}  // namespace sluice::kernels::reference
