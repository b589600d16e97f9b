// Counts the instructions of the kernels' loops in the emulator.
#pragma once

#include <string>

namespace sluice::simt {

// Returns the counts of loop_cases.h as JSON: for each loop, the instructions that the busiest warp
// executes in `steps` more steps (WarpCosts of kernels/simt/costs.h). tools/sass_loops.py compares
// them with the machine code.
std::string CountLoops();

}  // namespace sluice::simt
