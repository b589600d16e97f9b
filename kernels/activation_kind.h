// The activations of an MLP:
//   kSilu         x / (1 + exp(-x))
//   kGelu         x (1 + erf(x / sqrt(2))) / 2
//   kGeluTanh     x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
//   kRelu         max(x, 0)
//   kSquaredRelu  max(x, 0)^2
// Sources: Hendrycks and Gimpel, arXiv 1606.08415; So et al., arXiv 2109.08668.
#pragma once

namespace sluice::kernels {

enum class Activation { kSilu, kGelu, kGeluTanh, kRelu, kSquaredRelu };
inline constexpr int kActivations = 5;

}  // namespace sluice::kernels
