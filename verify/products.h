// Products of rows by the weights of a layer as the daemon computes them, and their errors.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/context.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/thread_pool.h"

namespace sluice::verify {

// Sums of squares: of a layer's outputs on a sample, and of their errors.
struct Squares {
  double output = 0, error = 0;

  Squares operator+(const Squares& other) const {
    return {output + other.output, error + other.error};
  }
  double relative() const { return output == 0 ? 0 : std::sqrt(error / output); }
};

// Returns the squares of values that should be `exact`.
Squares SquaresOf(std::span<const float> exact, std::span<const float> found);

// Multiplies rows x, [.., width], by the columns of a layer, w, [columns, width].
class Products {
 public:
  std::vector<float> InF32(std::span<const float> x, std::span<const float> w, int64_t width) const;
  // Returns the product in int8, except for the channels `kept`, which ascend.
  std::vector<float> InInt8(std::span<const float> x, std::span<const float> w, int64_t width,
                            std::span<const int32_t> kept = {}) const;

 private:
  mutable kernels::ThreadPool pool_{kernels::AvailableCpus()};
  const kernels::Context context_{kernels::BestProfile(), &pool_};
};

}  // namespace sluice::verify
