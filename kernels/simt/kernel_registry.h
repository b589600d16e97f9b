// A registry of all kernels linked into the program and of those that the emulator has run.
#pragma once

#include <string>
#include <vector>

#include "kernels/simt/stream.h"

namespace sluice::simt {

// `type` distinguishes the instances of a template in reports.
void RegisterKernel(const kernels::cuda::Kernel& kernel, const char* type);
void NoteLaunched(const kernels::cuda::Kernel& kernel);

// Returns the names of the kernels that no launch of this process has run.
std::vector<std::string> NeverLaunched();

}  // namespace sluice::simt
