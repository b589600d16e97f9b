// Elementwise and row-wise functions in double.
#pragma once

#include <span>
#include <vector>

#include "kernels/activation_kind.h"

namespace sluice::kernels::reference {

double Activate(Activation activation, double x);

// Returns silu(gate) * up, elementwise. The sizes are equal.
std::vector<double> SwiGlu(std::span<const double> gate, std::span<const double> up);

// Returns log(sum(exp(x))) of one row; -inf if all elements are -inf.
double LogSumExp(std::span<const double> x);

// Returns x - LogSumExp(x) for one row.
std::vector<double> LogSoftmax(std::span<const double> x);

}  // namespace sluice::kernels::reference
