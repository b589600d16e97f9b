#include "kernels/simt/kernel_registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace sluice::simt {
namespace {

// The compilers of the two builds write an unnamed namespace in different ways.
TEST(KernelRegistryTest, NamesHaveTheTypeOfTheArgumentWithoutNamespaces) {
  static const char function = 0;
  for (const char* scope :
       {"", "{anonymous}::", "(anonymous namespace)::", "_GLOBAL__N__dd4_a_1::"}) {
    const std::string type =
        std::string("Kernel KernelOf(const char*) [with Argument = a::cuda::") + scope +
        "Job<float, a::cuda::Half>]";
    RegisterKernel({"Pack", &function}, type.c_str());
    const auto kernels = RegisteredKernels();
    const auto found = std::find_if(kernels.begin(), kernels.end(),
                                    [](const auto& k) { return k.function == &function; });
    ASSERT_NE(found, kernels.end());
    EXPECT_EQ(found->name, "Pack(Job<float, Half>)");
  }
}

}  // namespace
}  // namespace sluice::simt
