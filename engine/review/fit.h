// Optimal bucket boundaries for a histogram of sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/schedule_values.h"

namespace sluice {

// Chooses at most `count` capacities, the last one `maximum`, that minimise
//   sum over sizes of weight * cost(smallest capacity >= tokens)
//   + sum over capacities of fixed_cost(capacity).
// Requires that `sizes` ascend strictly and are <= maximum, that weights are > 0, and that `cost`
// does not decrease. Only sizes and the maximum are considered as capacities; others are never
// better. Uses divide and conquer over the Monge segment cost: exact in O(count * n log n) time and
// O(count * n) memory for n sizes. Returns fewer capacities if more capacities cost more than they
// save. Ties go to fewer, then to smaller capacities.
std::vector<int32_t> FitCapacities(std::span<const TokenWeight> sizes, int32_t maximum, int count,
                                   const std::function<double(int32_t)>& cost,
                                   const std::function<double(int32_t)>& fixed_cost);

}  // namespace sluice
