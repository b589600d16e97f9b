#include "kernels/reference/activation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/check.h"

namespace sluice::kernels::reference {

double Activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGelu:
      return x / 2 * std::erfc(-x / std::numbers::sqrt2);
    case Activation::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kSquaredRelu:
      return std::max(x, 0.0) * std::max(x, 0.0);
  }
  SLUICE_CHECK(false);
}

std::vector<double> SwiGlu(std::span<const double> gate, std::span<const double> up) {
  std::vector<double> out(gate.size());
  for (size_t i = 0; i < gate.size(); ++i) out[i] = Activate(Activation::kSilu, gate[i]) * up[i];
  return out;
}

double LogSumExp(std::span<const double> x) {
  const double largest = *std::max_element(x.begin(), x.end());
  if (largest == -std::numeric_limits<double>::infinity()) return largest;
  double sum = 0;
  for (double value : x) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

std::vector<double> LogSoftmax(std::span<const double> x) {
  const double log_sum = LogSumExp(x);
  std::vector<double> out(x.begin(), x.end());
  for (double& value : out) value -= log_sum;
  return out;
}

}  // namespace sluice::kernels::reference
