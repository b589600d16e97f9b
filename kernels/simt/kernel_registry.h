// A registry of all kernels linked into the program, for a GPU or for the emulator, and of the
// kernels that the emulator has run.
#pragma once

#include <string>
#include <vector>

#include "kernels/simt/stream.h"

namespace sluice::simt {

struct RegisteredKernel {
  std::string name;      // with its argument's type, to distinguish instances of a template
  const void* function;  // Kernel::function
};

// `type` is the __PRETTY_FUNCTION__ of a template whose parameter `Argument` is the type of the
// kernel's argument.
void RegisterKernel(const kernels::cuda::Kernel& kernel, const char* type);
void NoteLaunched(const kernels::cuda::Kernel& kernel);

// Returns all kernels by name. They are complete when main begins.
std::vector<RegisteredKernel> RegisteredKernels();
// Returns the names of the kernels that no launch of this process has run.
std::vector<std::string> NeverLaunched();

}  // namespace sluice::simt
