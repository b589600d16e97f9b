// Summarises figures over the rounds of a benchmark.
#pragma once

#include <vector>

#include "nlohmann/json.hpp"

namespace sluice::loadtest {

struct Spread {
  double median = 0, min = 0, max = 0;
};
// Returns the spread of the values, all 0 if there are none.
Spread SpreadOf(const std::vector<double>& values);
// Returns {"median", "min", "max"}.
nlohmann::json SpreadJson(const Spread& spread);

}  // namespace sluice::loadtest
