// Optimal bucket boundaries for a histogram of sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace sluice {

struct WeightedSize {
  int32_t tokens;
  double weight;  // > 0
};

// Chooses at most `count` capacities, the last one `maximum`, that minimise
//   sum over sizes of weight * cost(smallest capacity >= tokens) + sum over capacities of price(c).
// `sizes` ascend strictly and are <= maximum; `cost` must not decrease. Other capacities than sizes
// (and the maximum) are never better. Divide and conquer over the Monge segment cost: exact in
// O(count * n log n) time and O(count * n) memory for n sizes. Fewer capacities are returned where
// more would not pay their price. Ties go to the fewer, then the smaller capacities.
std::vector<int32_t> FitCapacities(std::span<const WeightedSize> sizes, int32_t maximum, int count,
                                   const std::function<double(int32_t)>& cost,
                                   const std::function<double(int32_t)>& price);

}  // namespace sluice
