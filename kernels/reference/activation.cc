#include "kernels/reference/activation.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice::kernels::reference {

std::vector<double> SwiGlu(std::span<const double> gate, std::span<const double> up) {
  std::vector<double> out(gate.size());
  for (size_t i = 0; i < gate.size(); ++i) out[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
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
