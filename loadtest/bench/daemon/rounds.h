// Figures over the rounds of a benchmark.
#pragma once

#include <vector>

#include "nlohmann/json.hpp"

namespace sluice::loadtest {

struct Spread {
  double median = 0, min = 0, max = 0;
};
// All 0 for no values.
Spread SpreadOf(const std::vector<double>& values);
// {"median", "min", "max"}.
nlohmann::json SpreadJson(const Spread& spread);

}  // namespace sluice::loadtest
