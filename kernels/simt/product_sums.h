// The sums of a matrix product as tensor cores compute them. They do not round like IEEE 754.
// Products are exact. The products and the accumulator are aligned to the largest exponent among
// them and truncated some bits below it. The truncated terms are added exactly, and the sum is
// truncated to float. NVIDIA does not document this. The figures come from software models whose
// authors found them equal to GPUs bit by bit: P. Xie et al., "MMA-Sim: Bit-Accurate Reference
// Model of Tensor Cores and Matrix Cores" (arXiv 2511.10909), and F. A. Khattak, M. Mikaitis,
// "Accurate Models of NVIDIA Tensor Cores" (arXiv 2512.07004). M. Fasi et al. first observed
// truncation: "Numerical behavior of NVIDIA tensor cores" (PeerJ Computer Science 7:e330, 2021).
//
// A product's exponent is the sum of its factors' exponents. Here a zero product does not affect
// the alignment; hardware may give it a very low exponent.
#pragma once

#include <bit>
#include <cstdint>

#include "base/enum_names.h"

namespace sluice::simt {

enum class ProductSums {
  kHopper,   // and Blackwell: all 16 products at once, 25 bits below the largest exponent
  kAmpere,   // and Ada: 8 products, then the other 8; 24 bits
  kRounded,  // no GPU: fused multiply-adds in float, one after another
};

constexpr auto EnumNamesOf(ProductSums) {
  using enum ProductSums;
  return EnumNameTable<ProductSums>(
      {{kHopper, "hopper"}, {kAmpere, "ampere"}, {kRounded, "rounded"}});
}

// While it exists, the calling thread computes matrix products in this way. Otherwise the
// environment variable SLUICE_SIMT_SUMS names the way, or it is kHopper if the variable is not set.
class WithProductSums {
 public:
  explicit WithProductSums(ProductSums sums);
  ~WithProductSums();
  WithProductSums(const WithProductSums&) = delete;
  WithProductSums& operator=(const WithProductSums&) = delete;

 private:
  const ProductSums outer_;
};

// The factors of 16 products from one operand, which are bfloat16 values.
struct Factors {
  static constexpr int kCount = 16;
  // The exponent of a zero, which is less than the sum of the exponents of any two other numbers.
  static constexpr int16_t kZeroExponent = -10000;

  float values[kCount];
  int16_t exponents[kCount];
  bool finite = true;

  void Set(int i, float value) {
    const auto field = static_cast<int16_t>(std::bit_cast<uint32_t>(value) >> 23 & 0xFF);
    values[i] = value;
    exponents[i] = value == 0 ? kZeroExponent : static_cast<int16_t>((field > 0 ? field : 1) - 127);
    finite = finite && field < 0xFF;
  }
};

// Returns c + sum a[i] b[i].
float AddProducts(const Factors& a, const Factors& b, float c);

}  // namespace sluice::simt
