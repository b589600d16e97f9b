// log(sum(exp(x))) over fixed blocks of columns, which may be summed apart: what full rows of
// logits and the head share, so that a row's sum has the same bits whichever way it went.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cpu/math.h"
#include "kernels/cpu/simd/table.h"

namespace sluice::kernels {

inline constexpr int64_t kSumColumns = 512;

// Of one block: its largest value, and sum(exp(x - largest)) in f32. NaN where the block holds NaN
// or +inf; where nothing but -inf, 0.
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

// Puts a row's blocks together; they are to be added in ascending order of columns. In double, so
// that x[i] - log() keeps its accuracy where logits are large.
class LogSum {
 public:
  // `largest`: of the whole row.
  LogSum(const simd::Table& table, float largest) : table_(table), largest_(largest) {}

  void Add(const BlockSum& block) {
    float weight = 1.0f;
    if (block.largest != largest_) {
      weight = table_.exp_sum(&block.largest, 1, largest_, 1.0f, 0.0f, nullptr);
    }
    total_ += double{weight} * block.sum;
  }
  // NaN when any x is NaN or +inf; -inf when all are -inf.
  double log() const { return largest_ + Log(total_); }

 private:
  const simd::Table& table_;
  float largest_;
  double total_ = 0;
};

}  // namespace sluice::kernels
