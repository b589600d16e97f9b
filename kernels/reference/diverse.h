// The reference of diverse selection (kernels/diversity.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::kernels::reference {

// Returns the indices of `count` of the candidates in the order in which they are chosen. `vectors`
// is [scores.size(), width]. The rest of each candidate is computed by elimination, from the
// beginning.
std::vector<int32_t> ChooseDiverse(std::span<const double> scores, std::span<const double> vectors,
                                   int64_t width, double diversity, int64_t count);

}  // namespace sluice::kernels::reference
