// Checks that the emulator has launched every kernel after a run of the whole binary. Runs of
// single tests are not checked.
#include <gtest/gtest.h>

#include "kernels/simt/kernel_registry.h"

namespace sluice::simt {
namespace {

class EveryKernelIsLaunched : public testing::Environment {
 public:
  void TearDown() override {
    if (GTEST_FLAG_GET(filter) != "*" || GTEST_FLAG_GET(list_tests)) return;
    for (const std::string& kernel : NeverLaunched()) {
      ADD_FAILURE() << "no test has launched " << kernel;
    }
  }
};

[[maybe_unused]] const testing::Environment* const registered =
    testing::AddGlobalTestEnvironment(new EveryKernelIsLaunched);

}  // namespace
}  // namespace sluice::simt
