// Diverse selection among candidates (kernels/diversity.h has the formula), in double on one
// thread. Its bits depend only on its arguments.
#pragma once

#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"

namespace sluice::kernels {

// Returns the numbers of scratch for choosing `count` of n candidates.
constexpr int64_t DiverseScratch(int64_t n, int64_t count) { return n * (count + 2); }

// The inner product of the vectors of two candidates.
using VectorProduct = absl::FunctionRef<double(int64_t i, int64_t j)>;

// A choice of candidates, one after another.
class DiverseChoice {
 public:
  // Requires scores that are not NaN and, for `count` choices, scratch of [DiverseScratch(n,
  // count)] numbers. Neither is owned.
  DiverseChoice(std::span<const float> scores, double diversity, double* scratch);

  // Returns the index of the next choice. Requires that a candidate is left. At the first choice,
  // calls `product` for each candidate with itself; at later choices, for each candidate with the
  // previous choice.
  int32_t Next(VectorProduct product);

 private:
  void AddRow(VectorProduct product);

  const std::span<const float> scores_;
  const double diversity_;
  double* const rest_;    // [n]; -1 of a chosen candidate
  double* const length_;  // [n], of the vectors
  double* const factor_;  // [rows_, n]
  int64_t rows_ = 0;
  int64_t latest_ = -1;        // the latest choice, or -1 before the first
  double rest_of_latest_ = 0;  // its rest before it was chosen
};

// Writes the indices of the chosen candidates to `chosen`, in the order in which they are chosen.
// Requires chosen.size() <= scores.size(). The requirements of DiverseChoice also apply.
void ChooseDiverse(std::span<const float> scores, double diversity, VectorProduct product,
                   std::span<int32_t> chosen, double* scratch);

}  // namespace sluice::kernels
