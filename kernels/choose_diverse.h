// Diverse selection among candidates (kernels/diversity.h has the formula), in double on one
// thread. Its bits depend on its arguments alone.
#pragma once

#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"

namespace sluice::kernels {

// Returns the numbers of scratch for choosing `count` of n candidates.
constexpr int64_t DiverseScratch(int64_t n, int64_t count) { return n * (count + 2); }

// The inner product of the vectors of two candidates.
using VectorProduct = absl::FunctionRef<double(int64_t i, int64_t j)>;

// Writes the places of the chosen candidates to `chosen`, in the order in which they are chosen.
// Requires 0 <= chosen.size() <= scores.size() and scores that are not NaN. The product is asked
// for each candidate with itself once, and with each chosen one but the last.
//   scratch: [DiverseScratch(scores.size(), chosen.size())]
void ChooseDiverse(std::span<const float> scores, double diversity, VectorProduct product,
                   std::span<int32_t> chosen, double* scratch);

}  // namespace sluice::kernels
