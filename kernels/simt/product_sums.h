// The sums of a matrix product as tensor cores compute them, which is not as IEEE 754 would round:
// products are exact; they and the accumulator are aligned to the largest exponent among them and
// truncated some bits below it; the sum of what is left is exact and is truncated to float. NVIDIA
// documents none of that. The figures are those of software models that their authors found equal
// to GPUs bit by bit: P. Xie et al., "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and
// Matrix Cores" (arXiv 2511.10909), and F. A. Khattak, M. Mikaitis, "Accurate Models of NVIDIA
// Tensor Cores" (arXiv 2512.07004); the first to see truncation were M. Fasi et al., "Numerical
// behavior of NVIDIA tensor cores" (PeerJ Computer Science 7:e330, 2021).
//
// A product's exponent is the sum of its factors' exponents. A product of zero does not take part
// in the alignment, where hardware may give it a very low exponent.
#pragma once

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

// While it lives, the calling thread computes matrix products in this way; otherwise in that which
// the environment variable SLUICE_SIMT_SUMS names, or as kHopper if it is not set.
class WithProductSums {
 public:
  explicit WithProductSums(ProductSums sums);
  ~WithProductSums();
  WithProductSums(const WithProductSums&) = delete;
  WithProductSums& operator=(const WithProductSums&) = delete;

 private:
  const ProductSums outer_;
};

// Returns c + sum a[i] b[i]. The factors are bfloat16 values.
float AddProducts(const float (&a)[16], const float (&b)[16], float c);

}  // namespace sluice::simt
