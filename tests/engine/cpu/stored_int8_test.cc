// A checkpoint stored in int8 gives the same bits as one that is quantised on load.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "engine/model/check_tensors.h"
#include "tests/engine/cpu/int8_models.h"
#include "tests/engine/cpu/runner.h"

namespace sluice::testing {
namespace {

class StoredInt8Test : public ::testing::TestWithParam<std::string> {};

TEST_P(StoredInt8Test, AStoredCheckpointGivesTheBitsOfQuantisingOnLoad) {
  ModelConfig config = TinyConfig(2);
  const auto stored_as_bf16 = RandomModel(config, 8, kernels::DType::kBF16);
  config.quantization.projections = Quantization::kInt8;
  const auto on_load = RandomModel(config, 8, kernels::DType::kBF16);
  const TemporaryDirectory directory;
  config.quantization = {};
  WriteTestFile(directory.File("config.json"), ConfigJson(config));
  WriteStored(*stored_as_bf16, directory.path());
  const auto stored = LoadModel("m", 1, directory.path());
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ(CheckTensors(**stored), absl::OkStatus());
  const CpuOptions options = {.threads = 2, .profile = GetParam(), .poison = true};
  std::mt19937_64 random(9);
  const std::vector<std::vector<int32_t>> prompts = {RandomTokens(random, 11, config.vocab_size)};
  const Bucket bucket{11, 1};
  Runner expected(on_load, options, bucket), runner(*stored, options, bucket);
  EXPECT_TRUE(SameBits(runner.Run(prompts)[0], expected.Run(prompts)[0]));
  EXPECT_EQ(runner.executable().weight_bytes(), expected.executable().weight_bytes());
  // The head is in bf16; a profile that multiplies in bf16 has this in its name.
  Runner plain(stored_as_bf16, options, bucket);
  EXPECT_EQ(runner.executable().profile(), plain.executable().profile() + "-int8");
}

INSTANTIATE_TEST_SUITE_P(Profiles, StoredInt8Test, ::testing::ValuesIn(SupportedProfiles()),
                         [](const auto& tested) { return TestName(tested.param); });

}  // namespace
}  // namespace sluice::testing
