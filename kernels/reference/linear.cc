#include "kernels/reference/linear.h"

namespace sluice::kernels::reference {

std::vector<double> Linear(std::span<const double> x, std::span<const double> weight,
                           std::span<const double> bias, int64_t in, int64_t out) {
  const int64_t rows = std::ssize(x) / in;
  std::vector<double> y(static_cast<size_t>(rows * out));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t e = 0; e < out; ++e) {
      double sum = bias.empty() ? 0.0 : bias[e];
      for (int64_t d = 0; d < in; ++d) sum += x[r * in + d] * weight[e * in + d];
      y[r * out + e] = sum;
    }
  }
  return y;
}

std::vector<double> PositionWise(std::span<const double> x, std::span<const int32_t> positions,
                                 std::span<const double> weight, std::span<const double> bias,
                                 bool position_bias, int64_t in, int64_t out) {
  std::vector<double> y(positions.size() * static_cast<size_t>(out));
  for (size_t r = 0; r < positions.size(); ++r) {
    const std::span<const double> matrix = weight.subspan(positions[r] * in * out, in * out);
    for (int64_t e = 0; e < out; ++e) {
      double sum = bias.empty() ? 0.0 : bias[position_bias ? positions[r] * out + e : e];
      for (int64_t d = 0; d < in; ++d) sum += x[r * in + d] * matrix[d * out + e];
      y[r * out + e] = sum;
    }
  }
  return y;
}

std::vector<double> PositionWiseEinsum(std::span<const double> x, std::span<const double> weight,
                                       int64_t batch, int64_t length, int64_t in, int64_t out) {
  std::vector<double> y(static_cast<size_t>(batch * length * out));
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t l = 0; l < length; ++l) {
      for (int64_t d = 0; d < in; ++d) {
        for (int64_t e = 0; e < out; ++e) {
          y[(b * length + l) * out + e] +=
              x[(b * length + l) * in + d] * weight[(l * in + d) * out + e];
        }
      }
    }
  }
  return y;
}

}  // namespace sluice::kernels::reference
