// Scalar functions whose bits depend on nothing but their argument: the C library chooses its
// variants by CPU, which a numerics profile must not see.
#pragma once

namespace sluice::kernels {

// Natural logarithm, within 2 ulp for normal x. log(0) = -inf; NaN for x < 0 and NaN; log(inf) =
// inf.
double Log(double x);

}  // namespace sluice::kernels
