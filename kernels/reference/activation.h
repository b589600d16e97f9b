// Elementwise and row-wise functions in double.
#pragma once

#include <span>
#include <vector>

#include "kernels/activation_kind.h"

namespace sluice::kernels::reference {

double Activate(Activation activation, double x);

// silu(gate) * up. Same sizes.
std::vector<double> SwiGlu(std::span<const double> gate, std::span<const double> up);

// log(sum(exp(x))) of one row; -inf where all are.
double LogSumExp(std::span<const double> x);

// x - LogSumExp(x), of one row.
std::vector<double> LogSoftmax(std::span<const double> x);

}  // namespace sluice::kernels::reference
