// The flags that set the cost of a step.
#pragma once

#include <string>
#include <string_view>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "loadtest/simulate/experiment.h"

namespace sluice::loadtest {

struct CostFlags {
  double base_us = 60, per_token_us = 0.04, per_adapter_us = 0;
  std::string of = "bucket";  // "bucket", "library" or "computed"
  std::string file;           // a file of measured costs to use instead
};

// Returns the rows of the flag's value with this name.
ComputedRows RowsNamed(std::string_view name);

void AddCostFlags(CLI::App* app, CostFlags* flags);

// Sets the costs from the flags. Returns an error if the file cannot be read.
absl::Status SetCosts(const CostFlags& flags, StepCosts* costs);

}  // namespace sluice::loadtest
