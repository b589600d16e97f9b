// Checks that the emulator has launched every kernel after a run of the whole binary. Runs of
// single tests are not checked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/cuda/emulator/simt_device.h"
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

TEST(KernelTableTest, NamesEveryKernelWithTheTypeOfItsArgument) {
  std::vector<std::string> names;
  for (const KernelInfo& kernel : MakeSimtDevice()->KernelTable()) {
    EXPECT_THAT(kernel.name, testing::Not(testing::HasSubstr("::")));
    EXPECT_EQ(kernel.registers, 0) << "the emulator reports none";
    names.push_back(kernel.name);
  }
  EXPECT_EQ(names.size(), RegisteredKernels().size());
  EXPECT_THAT(names, testing::IsSupersetOf({"Diversify(DiverseArgs<BFloat16>)",
                                            "Transpose(TransposeJob<Float16, BFloat16>)"}));
}

}  // namespace
}  // namespace sluice::simt
