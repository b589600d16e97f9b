#include "kernels/cpu/state_products.h"

#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {

void AddStateProducts(Profile profile, std::span<const float> row, const double* states,
                      int64_t stride, std::span<double> sums) {
  simd::StateProductsFor(profile)({.row = row.data(),
                                   .width = std::ssize(row),
                                   .states = states,
                                   .stride = stride,
                                   .count = std::ssize(sums),
                                   .sums = sums.data()});
}

}  // namespace sluice::kernels
