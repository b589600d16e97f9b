// Fits a ladder to sample lengths with the code by which the daemon adapts its ladders.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "client/arguments.h"

namespace sluice::client {

struct FitReport {
  size_t lengths = 0;              // the number of lengths that the ladder was fitted to
  std::vector<int32_t> fitted;     // capacities in tokens, ascending; the last is max_batch_tokens
  std::vector<int32_t> geometric;  // as many buckets, or one less if rounding makes two equal
  // The padding efficiency of the batches that the cut-and-fill scheduler makes of the lengths, in
  // their order. They arrive at random (Poisson, with a fixed seed) at `load`, and a step costs
  // step_us + token_us * bucket tokens.
  double fitted_efficiency = 0;
  double geometric_efficiency = 0;
};

// Requires that `lengths` is not empty and that each is in [1, max_batch_tokens]. Evenly spaced
// ones are used if there are very many.
FitReport Fit(std::span<const int32_t> lengths, const FitArguments& arguments);

// Returns the report as YAML comments, then the options `engine.ladder` and `engine.batch` that
// give the fitted ladder.
std::string FitText(const FitReport& report, const FitArguments& arguments);

}  // namespace sluice::client
