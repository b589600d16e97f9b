// All kernels that were linked in, and which of them the emulator has run.
#pragma once

#include <string>
#include <vector>

#include "kernels/simt/stream.h"

namespace sluice::simt {

// `type` tells instances of one template apart in reports.
void RegisterKernel(const kernels::cuda::Kernel& kernel, const char* type);
void NoteLaunched(const kernels::cuda::Kernel& kernel);

// Kernels that no launch of this process has run, by name.
std::vector<std::string> NeverLaunched();

}  // namespace sluice::simt
