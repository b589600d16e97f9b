// Profiles of steps. The durations of ops are not asserted.
#include "engine/cpu/op_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/cpu/cpu_backend.h"
#include "tests/support/checkpoint_writer.h"

namespace sluice::testing {
namespace {

using ::testing::HasSubstr;

// A model on two threads. Its slots are poisoned, so that no token is drawn if an op reads memory
// that no step has written.
class ProfileTest : public ::testing::Test {
 protected:
  void Load(const ModelConfig& config) {
    model_ = RandomModel(config, 7);
    backend_ = MakeCpuBackend({.threads = 2, .poison = true},
                              {.variant = {AttentionVariant::Kind::kSplit, 0}})
                   .value();
    executable_ = backend_->Load(model_).value();
  }

  absl::StatusOr<StepDescription> Profile(const StepSizes& step) {
    return executable_->DescribeStep(step, /*profile=*/true);
  }

  // Expects a time and the bytes of a weight for each op of the graph.
  void ExpectComplete(const StepDescription& step) {
    EXPECT_EQ(step.model, model_);
    EXPECT_EQ(step.weight_bytes, WeightBytes(*model_));
    ASSERT_EQ(step.seconds.size(), model_->graph.ops.size());
    for (const double seconds : step.seconds) EXPECT_GE(seconds, 0);
  }

  std::shared_ptr<const Model> model_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ExecutableModel> executable_;
};

TEST_F(ProfileTest, HasATimeForEachOpOfADecodeStep) {
  ModelConfig config = TinyConfig(2);
  config.max_positions = 2000;
  config.xsa.layers = {true, false};
  Load(config);
  const auto step = Profile({.sequences = 3, .context = 1500});
  ASSERT_TRUE(step.ok()) << step.status();
  ExpectComplete(*step);
  EXPECT_EQ(step->step.tokens, 1);
}

TEST_F(ProfileTest, MeasuresTheMachineInTurnsWithTheOps) {
  Load(TinyConfig(2));
  int turns = 0;
  const auto seconds = TimeOps(static_cast<const CpuModel&>(*executable_), *model_,
                               {.sequences = 2, .tokens = 1, .context = 20}, [&] { ++turns; });
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_EQ(seconds->size(), model_->graph.ops.size());
  EXPECT_GE(turns, 2) << "at least before the first step and after the last one";
}

TEST_F(ProfileTest, HasATimeForEachOpOfAPrompt) {
  Load(TinyConfig(2));
  const auto step = Profile({.sequences = 2, .tokens = 9, .context = 20});
  ASSERT_TRUE(step.ok()) << step.status();
  ExpectComplete(*step);
}

TEST_F(ProfileTest, SupportsModelsWithVectorInputAndNoHead) {
  ModelConfig config = TinySluiceConfig(2);
  config.causal = false;
  config.architecture = "SluiceModel";
  config.has_lm_head = false;
  config.input = InputKind::kEmbeds;
  config.input_width = 5;
  config.input_adapter = InputAdapter::kDense;
  Load(config);
  const auto step = Profile({.sequences = 2, .context = 8});
  ASSERT_TRUE(step.ok()) << step.status();
  ExpectComplete(*step);
  EXPECT_EQ(step->step.tokens, 8);
}

TEST_F(ProfileTest, IsLeftOutUnlessItIsRequested) {
  Load(TinyConfig(1));
  const auto step = executable_->DescribeStep({.context = 8}, /*profile=*/false);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_TRUE(step->seconds.empty());
  EXPECT_EQ(AttentionVariantName(step->attention), "split:auto");
  EXPECT_EQ(step->attention_reason, "engine.attention.variant names it.");
}

TEST_F(ProfileTest, RefusesStepsThatTakeTooMuch) {
  ModelConfig config = TinyConfig(1);
  config.max_positions = 1 << 20;
  Load(config);
  const auto rows = Profile({.sequences = 65536, .tokens = 2, .context = 2});
  EXPECT_EQ(
      rows.status().message(),
      "sequences x tokens is 131072; a profile has at most 65536. Lower sequences or tokens.");
  const auto time = Profile({.sequences = 65536, .context = 1 << 20});
  EXPECT_EQ(time.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(time.status().message()),
              HasSubstr("multiply-adds; a profile has at most 2e+12"));
  const auto sizes = Profile({.context = (1 << 20) + 1});
  EXPECT_THAT(std::string(sizes.status().message()), HasSubstr("context is 1048577"));
}

TEST_F(ProfileTest, RefusesStepsWithoutMemory) {
  Load(TinyConfig(1));
  const StepSizes step = {.sequences = 16384, .tokens = 1, .context = 1 << 20};
  const auto times = TimeOps(static_cast<const CpuModel&>(*executable_), *model_, step);
  EXPECT_EQ(times.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(times.status().message()), HasSubstr("more than half of the"));
}

}  // namespace
}  // namespace sluice::testing
