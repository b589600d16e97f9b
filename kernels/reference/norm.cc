#include "kernels/reference/norm.h"

#include <cmath>

namespace sluice::kernels::reference {

std::vector<double> RmsNorm(std::span<const double> x, std::span<const double> weight, double eps,
                            int64_t dim) {
  const int64_t rows = std::ssize(x) / dim;
  std::vector<double> out(x.size());
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (int64_t d = 0; d < dim; ++d) squares += x[r * dim + d] * x[r * dim + d];
    const double root = std::sqrt(squares / static_cast<double>(dim) + eps);
    for (int64_t d = 0; d < dim; ++d) {
      out[r * dim + d] = x[r * dim + d] / root * (weight.empty() ? 1.0 : weight[d]);
    }
  }
  return out;
}

std::vector<double> LayerNorm(std::span<const double> x, std::span<const double> weight,
                              std::span<const double> bias, double eps, int64_t dim) {
  std::vector<double> centred(x.begin(), x.end());
  for (size_t row = 0; row < x.size(); row += dim) {
    double sum = 0;
    for (int64_t d = 0; d < dim; ++d) sum += x[row + d];
    for (int64_t d = 0; d < dim; ++d) centred[row + d] -= sum / static_cast<double>(dim);
  }
  std::vector<double> out = RmsNorm(centred, weight, eps, dim);
  for (size_t i = 0; i < out.size(); ++i) out[i] += bias.empty() ? 0.0 : bias[i % dim];
  return out;
}

}  // namespace sluice::kernels::reference
