// log(sum(exp(x))) over fixed blocks of columns that may be summed separately. Full rows of logits
// and the head share it, so that a row's sum has the same bits in both.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cpu/math.h"
#include "kernels/cpu/simd/table.h"

namespace sluice::kernels {

inline constexpr int64_t kSumColumns = 512;

// One block's largest value and sum(exp(x - largest)) in f32. The sum is NaN if the block has NaN
// or +inf, and 0 if it has only -inf.
struct BlockSum {
  float largest;
  float sum;
};

inline BlockSum SumOfBlock(const simd::Table& table, const float* x, int64_t n) {
  const float largest = table.max(x, n);
  if (largest > -std::numeric_limits<float>::infinity()) {
    return {largest, table.exp_sum(x, n, largest, 1.0f, 0.0f, nullptr)};
  }
  const bool nan = std::any_of(x, x + n, [](float v) { return std::isnan(v); });
  return {largest, nan ? std::numeric_limits<float>::quiet_NaN() : 0.0f};
}

// Combines the blocks of a row, which must be added in ascending order of columns. It sums in
// double, so that x[i] - log() stays accurate for large logits.
class LogSum {
 public:
  // `largest` is the largest value of the whole row.
  LogSum(const simd::Table& table, float largest) : table_(table), largest_(largest) {}

  void Add(const BlockSum& block) {
    float weight = 1.0f;
    if (block.largest != largest_) {
      weight = table_.exp_sum(&block.largest, 1, largest_, 1.0f, 0.0f, nullptr);
    }
    total_ += double{weight} * block.sum;
  }
  // Returns NaN if any x is NaN or +inf, and -inf if all are -inf.
  double log() const { return largest_ + Log(total_); }

 private:
  const simd::Table& table_;
  float largest_;
  double total_ = 0;
};

}  // namespace sluice::kernels
