// Profiles of steps. How long ops take is not asserted.
#include "engine/cpu/op_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>

#include "engine/cpu/cpu_backend.h"
#include "engine/einsum/device_description.h"
#include "nlohmann/json.hpp"
#include "tests/support/checkpoint_writer.h"

namespace sluice::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// A model on two threads. Its slots are poisoned, so that an op that reads what no step has written
// would not draw a token.
class ProfileTest : public ::testing::Test {
 protected:
  void Load(const ModelConfig& config) {
    model_ = RandomModel(config, 7);
    const std::string device = ::testing::TempDir() + "op_times_test_device.json";
    std::ofstream(device) << einsum::DeviceDescriptionJson(
        {.name = "a slow device, whatever this machine is",
         .flops_per_second = 1e9,
         .exponentials_per_second = 1e8,
         .levels = {{.name = "memory", .bytes = 1e15, .bytes_per_second = 1e9, .shared = true}}});
    backend_ = MakeCpuBackend({.threads = 2, .poison = true},
                              {.variant = {AttentionVariant::Kind::kSplit, 0}, .device = device})
                   .value();
    executable_ = backend_->Load(model_).value();
  }

  absl::StatusOr<json> Profile(const PlanQuery& query) {
    const auto text = executable_->DescribePlan(query);
    if (!text.ok()) return text.status();
    return json::parse(*text);
  }

  // Expects a time for each op of the graph, and a roofline.
  void ExpectComplete(const json& plan) {
    int64_t ops = 0;
    for (const json& op : plan["ops"]) {
      EXPECT_GE(op.at("measured_seconds"), 0) << op;
      EXPECT_GT(op["roofline"]["seconds"], 0) << op;
      EXPECT_GT(op["roofline"]["bytes"], 0) << op;
      ops += op["ops"].get<int64_t>();
    }
    EXPECT_EQ(ops, std::ssize(model_->graph.ops));
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
  const auto plan = Profile({.sequences = 3, .context = 1500, .profile = true});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ExpectComplete(*plan);
  EXPECT_EQ((*plan)["step"]["tokens"], 1);
}

TEST_F(ProfileTest, HasATimeForEachOpOfAPrompt) {
  Load(TinyConfig(2));
  const auto plan = Profile({.sequences = 2, .tokens = 9, .context = 20, .profile = true});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ExpectComplete(*plan);
}

TEST_F(ProfileTest, ReachesModelsThatReadVectorsAndHaveNoHead) {
  ModelConfig config = TinySluiceConfig(2);
  config.causal = false;
  config.architecture = "SluiceModel";
  config.has_lm_head = false;
  config.input = InputKind::kEmbeds;
  config.input_width = 5;
  config.input_adapter = InputAdapter::kDense;
  Load(config);
  const auto plan = Profile({.sequences = 2, .context = 8, .profile = true});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ExpectComplete(*plan);
  EXPECT_EQ((*plan)["step"]["tokens"], 8);
}

TEST_F(ProfileTest, IsLeftOutUnlessItIsWanted) {
  Load(TinyConfig(1));
  const auto plan = Profile({.context = 8});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE((*plan)["ops"][0].contains("measured_seconds"));
  EXPECT_THAT((*plan)["attention"][0]["reason"].get<std::string>(),
              HasSubstr("engine.attention.variant names it."));
}

TEST_F(ProfileTest, RefusesStepsThatTakeTooMuch) {
  ModelConfig config = TinyConfig(1);
  config.max_positions = 1 << 20;
  Load(config);
  const auto rows = Profile({.sequences = 65536, .tokens = 2, .context = 2, .profile = true});
  EXPECT_EQ(rows.status().message(), "sequences x tokens is 131072, a profile has at most 65536");
  const auto time = Profile({.sequences = 65536, .context = 1 << 20, .profile = true});
  EXPECT_EQ(time.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(time.status().message()), HasSubstr("that of a profile may take 10 s"));
  const auto sizes = Profile({.context = (1 << 20) + 1, .profile = true});
  EXPECT_THAT(std::string(sizes.status().message()), HasSubstr("context is 1048577"));
}

TEST_F(ProfileTest, RefusesStepsWithoutMemory) {
  Load(TinyConfig(1));
  const StepSizes step = {.sequences = 65536, .tokens = 1, .context = 1 << 20};
  const auto times = TimeOps(static_cast<const CpuModel&>(*executable_), *model_, step);
  EXPECT_EQ(times.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(times.status().message()), HasSubstr("more than half of the"));
}

}  // namespace
}  // namespace sluice::testing
