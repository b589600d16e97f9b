#include "kernels/reference/norm.h"

#include <cmath>

namespace sluice::kernels::reference {

std::vector<double> RmsNorm(std::span<const double> x, std::span<const double> weight, double eps,
                            int64_t dim) {
  const int64_t rows = static_cast<int64_t>(x.size()) / dim;
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

}  // namespace sluice::kernels::reference
