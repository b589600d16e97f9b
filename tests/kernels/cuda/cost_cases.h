// The launches in the table of costs (counters of kernels/simt/costs.h): each kernel on a small
// shape like those in a step of a model.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/support/device_lab.h"

namespace sluice::kernels::cuda {

struct CostCase {
  std::string name;  // the name of its rows in the table
  std::string shape;
  std::function<void(DeviceLab& lab, std::mt19937_64& random)> run;
};

std::vector<CostCase> CostCases();

}  // namespace sluice::kernels::cuda
