// The loops whose instructions are counted by the emulator and in machine code.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/support/device_lab.h"

namespace sluice::kernels::cuda {

// A kernel's loop of matrix products.
struct LoopCase {
  std::string source;  // in kernels/cuda
  std::string code;    // the kernel's name in kernels/cuda/sass.json
  std::string kernel;  // its name in the emulator
  std::string step;    // of the loop, such as "128 of k, 16 rows"
  int32_t fewest = 8;  // steps after which each further step costs the same
  int32_t more = 8;    // further steps that are counted
  std::function<void(DeviceLab& lab, std::mt19937_64& random, int32_t steps)> run;
};

std::vector<LoopCase> LoopCases();

}  // namespace sluice::kernels::cuda
