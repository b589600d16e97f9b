// Flags that say what a step costs.
#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "loadtest/simulate/experiment.h"

namespace sluice::loadtest {

struct CostFlags {
  double base_us = 60, per_token_us = 0.04;
  std::string of = "bucket";  // or computed
  std::string file;           // with a measured law instead
};

void AddCostFlags(CLI::App* app, CostFlags* flags);

// The error is that of the file.
absl::Status SetCosts(const CostFlags& flags, StepCosts* costs);

}  // namespace sluice::loadtest
