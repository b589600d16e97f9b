#include "kernels/simt/product_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"

namespace sluice::simt {
namespace {

constexpr int kMantissa = 23, kBias = 127, kMinExponent = -126;

ProductSums SumsOfEnvironment() {
  const char* const name = std::getenv("SLUICE_SIMT_SUMS");
  if (name == nullptr) return ProductSums::kHopper;
  const std::optional<ProductSums> sums = EnumOf<ProductSums>(name);
  SLUICE_CHECK(sums.has_value());
  return *sums;
}

thread_local ProductSums current_sums = SumsOfEnvironment();

// A finite value: significand * 2^(exponent - kMantissa).
struct Parts {
  int64_t significand;
  int exponent;
};

Parts PartsOf(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const int field = static_cast<int>(bits >> kMantissa & 0xFF);
  int64_t significand = bits & ((1u << kMantissa) - 1);
  if (field > 0) significand += int64_t{1} << kMantissa;
  if ((bits >> 31) != 0) significand = -significand;
  return {significand, field > 0 ? field - kBias : kMinExponent};
}

// Returns x * 2^shift, truncated towards zero.
int64_t Shift(int64_t x, int shift) {
  if (shift >= 0) return x * (int64_t{1} << shift);
  return shift <= -63 ? 0 : x / (int64_t{1} << -shift);
}

// Returns sum * 2^scale, truncated towards zero to a float.
float Truncate(int64_t sum, int scale) {
  const auto magnitude = static_cast<uint64_t>(std::abs(sum));
  const int excess = std::max(static_cast<int>(std::bit_width(magnitude)) - (kMantissa + 1),
                              kMinExponent - kMantissa - scale);
  if (excess > 0) {
    sum = Shift(sum, -excess);
    scale += excess;
  }
  // The value has at most 24 bits, so only its exponent can exceed a float's.
  return static_cast<float>(std::ldexp(static_cast<double>(sum), scale));
}

// Returns c + sum a[i] b[i], with terms truncated `bits` below the largest exponent. Takes any
// values and is slow.
float FusedSum(std::span<const float> a, std::span<const float> b, float c, int bits) {
  double plain = c;  // shows whether the sum is finite
  for (size_t i = 0; i < a.size(); ++i) plain += double{a[i]} * b[i];
  if (!std::isfinite(plain)) return static_cast<float>(plain);
  constexpr int kTerms = 17, kProductBits = 14;  // two significands of 7 bits after the point
  Parts terms[kTerms];
  size_t count = 0;
  int largest = std::numeric_limits<int>::min();
  const auto add = [&](const Parts& term) {
    if (term.significand == 0) return;
    largest = std::max(largest, term.exponent);
    terms[count++] = term;
  };
  for (size_t i = 0; i < a.size(); ++i) {
    const Parts x = PartsOf(a[i]), y = PartsOf(b[i]);
    constexpr int kUnused = kMantissa - kProductBits / 2;  // low bits that are 0
    add({Shift((x.significand >> kUnused) * (y.significand >> kUnused), kMantissa - kProductBits),
         x.exponent + y.exponent});
  }
  add(PartsOf(c));
  if (count == 0) return 0;
  int64_t sum = 0;
  for (const Parts& term : std::span(terms, count)) {
    sum += Shift(term.significand, bits - kMantissa + term.exponent - largest);
  }
  return Truncate(sum, largest - bits);
}

// Returns 2^exponent, which must be a normal float.
float PowerOfTwo(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + kBias) << kMantissa);
}

// Returns the FusedSum of c and the kCount products from number kFirst on.
template <int kFirst, int kCount, int kBits>
float AddFused(const Factors& a, const Factors& b, float c) {
  int16_t largest_product = std::numeric_limits<int16_t>::min();
  for (int i = kFirst; i < kFirst + kCount; ++i) {
    const auto exponent = static_cast<int16_t>(a.exponents[i] + b.exponents[i]);
    largest_product = std::max(largest_product, exponent);
  }
  const int largest =
      std::max<int>(largest_product, c == 0 ? Factors::kZeroExponent : PartsOf(c).exponent);
  const bool finite = a.finite && b.finite;
  if (finite && largest < 2 * kMinExponent) return 0;  // all terms are zero
  // If the largest exponent is in this range, each product is exact in float or too small to count,
  // and so is each scaled term.
  constexpr int kLeast = -76, kMost = 120;
  if (!finite || largest < kLeast || largest > kMost) {
    return FusedSum(std::span(a.values).subspan(kFirst, kCount),
                    std::span(b.values).subspan(kFirst, kCount), c, kBits);
  }
  const float scale = PowerOfTwo(kBits - largest);
  // The 16 products of significands below 2 sum up to less than 2^31. With c the sum may be larger.
  int32_t products = 0;
  for (int i = kFirst; i < kFirst + kCount; ++i) {
    products += static_cast<int32_t>(a.values[i] * b.values[i] * scale);
  }
  const auto sum = static_cast<double>(int64_t{products} + static_cast<int32_t>(c * scale));
  // Without the low bits that a float does not have, the sum is truncated and exact in float.
  constexpr int kLowBits = std::numeric_limits<double>::digits - std::numeric_limits<float>::digits;
  const uint64_t high = std::bit_cast<uint64_t>(sum) >> kLowBits << kLowBits;
  return static_cast<float>(std::bit_cast<double>(high)) * PowerOfTwo(largest - kBits);
}

}  // namespace

WithProductSums::WithProductSums(ProductSums sums) : outer_(std::exchange(current_sums, sums)) {}
WithProductSums::~WithProductSums() { current_sums = outer_; }

float AddProducts(const Factors& a, const Factors& b, float c) {
  switch (current_sums) {
    case ProductSums::kHopper:
      return AddFused<0, 16, 25>(a, b, c);
    case ProductSums::kAmpere:
      return AddFused<8, 8, 24>(a, b, AddFused<0, 8, 24>(a, b, c));
    case ProductSums::kRounded:
      break;
  }
  for (int i = 0; i < Factors::kCount; ++i) c = std::fma(a.values[i], b.values[i], c);
  return c;
}

}  // namespace sluice::simt
