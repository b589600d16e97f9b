// A ladder for sample lengths, by the code that the daemon adapts its ladders with.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "client/arguments.h"

namespace sluice::client {

struct FitReport {
  size_t lengths = 0;              // that were fitted to
  std::vector<int32_t> fitted;     // capacities in tokens, ascending; the last is max_batch_tokens
  std::vector<int32_t> geometric;  // as many, or one less where rounding makes two equal
  // Padding efficiency of the batches that cut and fill makes of the lengths in their order,
  // arriving at random (Poisson, a fixed seed) with `load`, in steps that cost step_us + token_us *
  // bucket tokens.
  double fitted_efficiency = 0;
  double geometric_efficiency = 0;
};

// `lengths` is not empty, each in [1, max_batch_tokens]; of very many, evenly spaced ones are used.
FitReport Fit(std::span<const int32_t> lengths, const FitArguments& arguments);

// For people, as comments of YAML, and the options `engine.ladder` and `engine.batch` that give the
// fitted ladder.
std::string FitText(const FitReport& report, const FitArguments& arguments);

}  // namespace sluice::client
