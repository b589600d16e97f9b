#include "kernels/choose_diverse.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/diversity.h"

namespace sluice::kernels {
namespace {

// What stands for the rest of a candidate that is chosen.
constexpr double kChosen = -1;

// Returns the first candidate of the largest gain among those that are not chosen.
int64_t BestGain(std::span<const float> scores, const double* rest, double diversity) {
  int64_t best = -1;
  float most = 0;
  for (int64_t i = 0; i < std::ssize(scores); ++i) {
    if (rest[i] == kChosen) continue;
    const float gain = DiverseGain(scores[i], rest[i], diversity);
    if (best >= 0 && !(gain > most)) continue;
    best = i;
    most = gain;
  }
  return best;
}

}  // namespace

void ChooseDiverse(std::span<const float> scores, double diversity, VectorProduct product,
                   std::span<int32_t> chosen, double* scratch) {
  SLUICE_CHECK(chosen.size() <= scores.size());
  const int64_t n = std::ssize(scores);
  double* const rest = scratch;            // [n]
  double* const length = scratch + n;      // [n], of the vectors
  double* const factor = scratch + 2 * n;  // [rows, n]
  std::fill_n(rest, n, 1.0);
  if (diversity > 0) {
    for (int64_t i = 0; i < n; ++i) length[i] = std::sqrt(product(i, i));
  }
  int64_t rows = 0;
  for (size_t step = 0; step < chosen.size(); ++step) {
    const int64_t j = BestGain(scores, rest, diversity);
    chosen[step] = static_cast<int32_t>(j);
    const double rest_of_j = rest[j];
    rest[j] = kChosen;
    if (diversity == 0 || rest_of_j < kLeastRest || step + 1 == chosen.size()) continue;
    double* const row = factor + rows * n;
    for (int64_t i = 0; i < n; ++i) {
      if (rest[i] == kChosen) continue;
      const double lengths = length[i] * length[j];
      double value = (1 + (lengths > 0 ? product(i, j) / lengths : 0)) / 2;
      for (int64_t r = 0; r < rows; ++r) value -= factor[r * n + j] * factor[r * n + i];
      row[i] = value / std::sqrt(rest_of_j);
      rest[i] = std::max(rest[i] - row[i] * row[i], 0.0);
    }
    ++rows;
  }
}

}  // namespace sluice::kernels
