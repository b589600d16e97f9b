// Quantiles of values that are all known.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace sluice {

// Returns the index of the quantile `share` in `size` ascending values: the least value such that
// at least `share` (0 to 1) of the values do not exceed it. If rounding of doubles puts the product
// slightly above a whole number, it counts as that number, so that 0.999 of 1000 values are 999.
// Requires a size above 0.
inline size_t QuantileIndex(size_t size, double share) {
  constexpr double kRounding = 1e-9;
  const double rank = std::ceil(share * static_cast<double>(size) - kRounding);
  return std::min(static_cast<size_t>(std::max(rank, 1.0)), size) - 1;
}

// Returns the quantile of `values`, which ascend, or Value{} if there are none.
template <typename Value>
Value QuantileOfSorted(std::span<const Value> values, double share) {
  return values.empty() ? Value{} : values[QuantileIndex(values.size(), share)];
}

// Returns the quantile of `values` in any order, or Value{} if there are none. Reorders them.
template <typename Value>
Value Quantile(std::span<Value> values, double share) {
  if (values.empty()) return Value{};
  const auto at = values.begin() + QuantileIndex(values.size(), share);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// Returns the value in the middle, or the mean of the two there, or 0 if there are no values.
inline double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace sluice
