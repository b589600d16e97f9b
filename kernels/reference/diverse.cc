#include "kernels/reference/diverse.h"

#include <algorithm>
#include <cmath>

#include "kernels/diversity.h"

namespace sluice::kernels::reference {
namespace {

double Product(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Returns the rest of the last member of `of` that the other members do not explain: the last pivot
// of their matrix.
double LastPivot(const std::vector<std::vector<double>>& similarity,
                 const std::vector<int32_t>& of) {
  const size_t n = of.size();
  std::vector<std::vector<double>> rows(n, std::vector<double>(n));
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) rows[i][j] = similarity[of[i]][of[j]];
  }
  for (size_t pivot = 0; pivot + 1 < n; ++pivot) {
    for (size_t i = pivot + 1; i < n; ++i) {
      const double factor = rows[i][pivot] / rows[pivot][pivot];
      for (size_t j = pivot; j < n; ++j) rows[i][j] -= factor * rows[pivot][j];
    }
  }
  return rows[n - 1][n - 1];
}

}  // namespace

std::vector<int32_t> ChooseDiverse(std::span<const double> scores, std::span<const double> vectors,
                                   int64_t width, double diversity, int64_t count) {
  const auto n = std::ssize(scores);
  const auto vector = [&](int64_t i) { return vectors.subspan(i * width, width); };
  std::vector<std::vector<double>> similarity(n, std::vector<double>(n));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const double lengths =
          std::sqrt(Product(vector(i), vector(i))) * std::sqrt(Product(vector(j), vector(j)));
      const double cosine = lengths > 0 ? Product(vector(i), vector(j)) / lengths : 0;
      similarity[i][j] = i == j ? 1 : (1 + cosine) / 2;
    }
  }
  std::vector<int32_t> chosen, basis;
  while (std::ssize(chosen) < count) {
    int32_t best = -1;
    float most = 0;
    double rest_of_best = 0;
    for (int32_t i = 0; i < n; ++i) {
      if (std::count(chosen.begin(), chosen.end(), i) != 0) continue;
      std::vector<int32_t> with = basis;
      with.push_back(i);
      const double rest = LastPivot(similarity, with);
      const float gain = DiverseGain(static_cast<float>(scores[i]), rest, diversity);
      if (best >= 0 && !(gain > most)) continue;
      best = i;
      most = gain;
      rest_of_best = rest;
    }
    chosen.push_back(best);
    if (rest_of_best >= kMinRest) basis.push_back(best);
  }
  return chosen;
}

}  // namespace sluice::kernels::reference
