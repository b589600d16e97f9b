#include "loadtest/bench/daemon/rounds.h"

#include <algorithm>

#include "base/quantile.h"

namespace sluice::loadtest {

Spread SpreadOf(const std::vector<double>& values) {
  if (values.empty()) return {};
  const auto [min, max] = std::minmax_element(values.begin(), values.end());
  return {Median(values), *min, *max};
}

nlohmann::json SpreadJson(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}

}  // namespace sluice::loadtest
