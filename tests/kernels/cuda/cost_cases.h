// The launches whose costs are in the table of kernels/simt/costs.h's counters: each kernel on a
// small shape of the kind that a step of a model has.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/support/device_lab.h"

namespace sluice::kernels::cuda {

struct CostCase {
  std::string name;  // of its rows in the table
  std::string shape;
  std::function<void(DeviceLab& lab, std::mt19937_64& random)> run;
};

std::vector<CostCase> CostCases();

}  // namespace sluice::kernels::cuda
