#include "engine/step_description.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/checkpoint_writer.h"

namespace sluice::testing {
namespace {

TEST(CompleteStep, ReplacesZerosByDefaults) {
  ModelConfig config = TinyConfig(1);
  config.max_positions = 64;
  EXPECT_EQ(CompleteStep(config, {}).value(), (StepSizes{1, 1, 64}));
  config.max_positions = 100000;
  EXPECT_EQ(CompleteStep(config, {.sequences = 3}).value(), (StepSizes{3, 1, 4096}));
  EXPECT_EQ(CompleteStep(config, {.tokens = 7, .context = 9}).value(), (StepSizes{1, 7, 9}));
  config.causal = false;
  EXPECT_EQ(CompleteStep(config, {.context = 9}).value(), (StepSizes{1, 9, 9}))
      << "attention in both directions computes whole sequences";
}

TEST(CompleteStep, RefusesStepsThatTheModelDoesNotSupport) {
  ModelConfig config = TinyConfig(1);
  const auto error = [&](StepSizes step) {
    return std::string(CompleteStep(config, step).status().message());
  };
  const int64_t most = config.max_positions;
  EXPECT_EQ(error({1, 1, most + 1}),
            absl::StrCat("context is ", most + 1, ", must be in [1, ", most, "]"));
  EXPECT_EQ(error({-1, 1, 1}), "sequences is -1, must be in [1, 65536]");
  EXPECT_EQ(error({1, 5, 4}), "tokens is 5, must be in [1, 4]");
  config.causal = false;
  EXPECT_EQ(error({1, 3, 4}), "tokens is 3, must be in [4, 4]") << "its sequences are whole";
}

}  // namespace
}  // namespace sluice::testing
