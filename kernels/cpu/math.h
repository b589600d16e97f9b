// Scalar functions whose bits depend only on their argument. The C library selects variants by CPU,
// which must not influence a numerics profile.
#pragma once

namespace sluice::kernels {

// Returns the natural logarithm, within 2 ulp for normal x. log(0) = -inf; NaN for x < 0 and NaN;
// log(inf) = inf.
double Log(double x);

}  // namespace sluice::kernels
