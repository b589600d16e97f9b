#include "kernels/cpu/math.h"

#include <bit>
#include <cstdint>
#include <limits>

namespace sluice::kernels {

// x = 2^e m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172,
// by its Taylor series: the first omitted term is below 2^-56 of the sum.
double Log(double x) {
  if (!(x > 0)) {
    return x == 0 ? -std::numeric_limits<double>::infinity()
                  : std::numeric_limits<double>::quiet_NaN();
  }
  if (x > std::numeric_limits<double>::max()) return x;
  int64_t exponent = 0;
  if (x < std::numeric_limits<double>::min()) {  // denormal
    x *= 0x1p54;
    exponent = -54;
  }
  constexpr uint64_t kMantissa = (uint64_t{1} << 52) - 1;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  exponent += static_cast<int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & kMantissa) | (uint64_t{1023} << 52));
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1) / (m + 1), square = s * s;
  double series = 0;
  for (int n = 21; n >= 3; n -= 2) series = (series + 1.0 / n) * square;
  constexpr double kLn2High = 0x1.62e42fefap-1,
                   kLn2Low = 0x1.cf79abc9e3b3ap-40;  // their sum is ln 2
  const double e = static_cast<double>(exponent);
  return e * kLn2High + (2 * (s + s * series) + e * kLn2Low);
}

}  // namespace sluice::kernels
