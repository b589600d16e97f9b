// Compares adapters with PEFT (tests/goldens/adapters), and checks that the bits of a row depend
// only on the row and its adapter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/engine/cpu/runner.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/golden_file.h"
#include "tests/support/temporary_directory.h"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> AdapterGoldens() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(GoldenPath("adapters"))) {
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

// Returns the largest difference, relative to the largest magnitude.
double Difference(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size()) return 1;
  double magnitude = 0, worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    magnitude = std::max(magnitude, std::abs(double{want[i]}));
    const double difference = std::abs(double{got[i]} - double{want[i]});
    if (!(difference <= worst)) worst = difference;  // keeps a NaN
  }
  return worst / magnitude;
}

std::unique_ptr<const LoadedAdapter> Load(const Runner& runner, const Adapter& adapter) {
  auto loaded = runner.executable().LoadAdapter(adapter);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return *std::move(loaded);
}

using GoldenParam = std::tuple<std::string, std::string>;  // golden, profile

class AdapterGoldenTest : public ::testing::TestWithParam<GoldenParam> {};

TEST_P(AdapterGoldenTest, StatesAndLogitsEqualPeft) {
  const auto& [name, profile] = GetParam();
  const TemporaryDirectory adapters;
  fs::copy(GoldenPath("adapters/" + name), adapters.File(name));
  const auto model =
      LoadModel(name, 1, GoldenPath("families/" + name), {.adapters = adapters.path()});
  ASSERT_TRUE(model.ok()) << model.status();
  const GoldenFile golden(GoldenPath("adapters/" + name + "/expected.safetensors"));
  const std::vector<int32_t> ids = golden.Ints("input_ids");
  Runner runner(*model, CpuOptions{.threads = 2, .profile = profile, .poison = true},
                Bucket{2 * static_cast<int32_t>(ids.size()), 16});
  const auto adapter = Load(runner, **(*model)->adapters[0].read());
  std::vector<Prompt> prompts;
  auto first = ids.begin();
  for (const int32_t length : golden.Ints("lengths")) {
    prompts.push_back({.tokens = {first, first + length}, .adapter = adapter.get()});
    first += length;
  }
  std::vector<float> states, logits;
  for (const Answer& answer : runner.Run(prompts, {static_cast<int32_t>(ids.size()), 16})) {
    states.insert(states.end(), answer.states.begin(), answer.states.end());
    logits.insert(logits.end(), answer.logits.begin(), answer.logits.end());
  }
  if (golden.Has("states")) {
    EXPECT_LT(Difference(states, golden.Floats("states")), 1e-5);
  }
  if (golden.Has("logits")) {
    EXPECT_LT(Difference(logits, golden.Floats("logits")), 1e-5);
  }
  for (Prompt& prompt : prompts) prompt.adapter = nullptr;
  std::vector<float> base;
  for (const Answer& answer : runner.Run(prompts, {static_cast<int32_t>(ids.size()), 16})) {
    base.insert(base.end(), answer.states.begin(), answer.states.end());
  }
  EXPECT_GT(Difference(base, states), 1e-3) << "the adapter changes nothing";
}

INSTANTIATE_TEST_SUITE_P(Goldens, AdapterGoldenTest,
                         ::testing::Combine(::testing::ValuesIn(AdapterGoldens()),
                                            ::testing::ValuesIn(F32Profiles())),
                         [](const auto& test) {
                           return TestName(std::get<0>(test.param) + "_" + std::get<1>(test.param));
                         });

class TaskGoldenTest : public ::testing::TestWithParam<GoldenParam> {};

// The adapters of the model's own checkpoint, each in a step with all others and the base model.
TEST_P(TaskGoldenTest, StatesOfEachTaskEqualTheStatement) {
  const auto& [name, profile] = GetParam();
  const auto model = LoadModel(name, 1, GoldenPath("families/" + name));
  ASSERT_TRUE(model.ok()) << model.status();
  const GoldenFile golden(GoldenPath("families/" + name + "/expected.safetensors"));
  const std::vector<int32_t> ids = golden.Ints("input_ids");
  const Bucket bucket{static_cast<int32_t>(5 * ids.size()), 64};
  Runner runner(*model, CpuOptions{.threads = 2, .profile = profile, .poison = true}, bucket);
  std::vector<std::unique_ptr<const LoadedAdapter>> adapters;
  for (const AdapterSource& task : (*model)->adapters) {
    adapters.push_back(Load(runner, **task.read()));
  }
  ASSERT_EQ(adapters.size(), 3u);
  std::vector<std::string> outputs = {"states"};
  for (const AdapterSource& task : (*model)->adapters) outputs.push_back("states_" + task.name);
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < outputs.size(); ++i) {
    auto first = ids.begin();
    for (const int32_t length : golden.Ints("lengths")) {
      prompts.push_back(
          {.tokens = {first, first + length}, .adapter = i == 0 ? nullptr : adapters[i - 1].get()});
      first += length;
    }
  }
  const std::vector<Answer> answers = runner.Run(prompts, bucket);
  const size_t rows = golden.Ints("lengths").size();
  for (size_t i = 0; i < outputs.size(); ++i) {
    SCOPED_TRACE(outputs[i]);
    std::vector<float> states;
    for (size_t row = i * rows; row < (i + 1) * rows; ++row) {
      states.insert(states.end(), answers[row].states.begin(), answers[row].states.end());
      const Bucket own{static_cast<int32_t>(prompts[row].tokens.size()), 1};
      EXPECT_TRUE(SameBits(answers[row], runner.Run(std::vector<Prompt>{prompts[row]}, own)[0]));
    }
    EXPECT_LT(Difference(states, golden.Floats(outputs[i])), 1e-5);
    EXPECT_EQ(Difference(states, golden.Floats("states")) > 1e-3, i > 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, TaskGoldenTest,
                         ::testing::Combine(::testing::Values("jina_tasks_1", "jina_tasks_2",
                                                              "jina_tasks_3"),
                                            ::testing::ValuesIn(F32Profiles())),
                         [](const auto& test) {
                           return TestName(std::get<0>(test.param) + "_" + std::get<1>(test.param));
                         });

constexpr int kAdapters = 64;

ModelConfig ConfigOf(const std::string& kind) {
  ModelConfig config = TinySluiceConfig(2);
  config.qkv_bias = config.output_bias = true;
  config.xsa.layers[1] = true;
  if (kind == "encoder") config.causal = false;
  if (kind == "position_wise") {
    config.position_wise.layers[static_cast<int>(Projection::kV)] = {true, false};
    config.position_wise.max_positions = config.max_positions;
  }
  if (kind == "int8" || kind == "int4") {
    config.hidden_size = 64;
    config.intermediate_size = 200;
    config.quantization.projections = kind == "int8" ? Quantization::kInt8 : Quantization::kInt4;
  }
  return config;
}

using Param = std::tuple<std::string, std::string>;  // profile, kind

class AdapterInvarianceTest : public ::testing::TestWithParam<Param> {
 protected:
  std::unique_ptr<Runner> MakeRunner(const std::shared_ptr<const Model>& model, int threads) const {
    return std::make_unique<Runner>(
        model, CpuOptions{.threads = threads, .profile = std::get<0>(GetParam()), .poison = true},
        kLargest);
  }
  static constexpr Bucket kLargest{400, 80};
  const ModelConfig config_ = ConfigOf(std::get<1>(GetParam()));
};

TEST_P(AdapterInvarianceTest, ARowHasTheBitsOfItsAdapterInOneStepWith64AdaptersAndTheBase) {
  const auto model = RandomModelWithAdapters(config_, 17, kernels::DType::kBF16, kAdapters);
  const auto without = RandomModel(config_, 17, kernels::DType::kBF16);
  const auto alone = MakeRunner(model, 1), together = MakeRunner(model, 2);
  const auto base = MakeRunner(without, 1);
  std::vector<std::unique_ptr<const LoadedAdapter>> adapters;
  for (const auto& adapter : model->adapters) adapters.push_back(Load(*together, **adapter.read()));
  std::map<const LoadedAdapter*, size_t> numbers;
  for (size_t i = 0; i < adapters.size(); ++i) numbers[adapters[i].get()] = i;
  const uint64_t seed = 5151;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < 80; ++i) {
    Prompt prompt{RandomTokens(random, static_cast<int64_t>(1 + random() % 5), config_.vocab_size)};
    if (i < adapters.size()) prompt.adapter = adapters[i].get();
    if (i >= 72) prompt.adapter = adapters[random() % adapters.size()].get();
    prompts.push_back(prompt);
  }
  std::ranges::shuffle(prompts, random);
  const std::vector<Answer> answers = together->Run(prompts, kLargest);
  const size_t step = EffortOfTests().every_kind ? 1 : 5;  // of the rows that are compared
  for (size_t i = 0; i < prompts.size(); i += step) {
    const Bucket own{static_cast<int32_t>(prompts[i].tokens.size()), 1};
    Prompt prompt = prompts[i];  // with the adapter on the other runner's device
    std::unique_ptr<const LoadedAdapter> adapter;
    if (prompt.adapter != nullptr) {
      adapter = Load(*alone, **model->adapters[numbers[prompt.adapter]].read());
      prompt.adapter = adapter.get();
    }
    const Answer expected = alone->Run(std::vector<Prompt>{prompt}, own)[0];
    ASSERT_TRUE(SameBits(answers[i], expected)) << "row " << i;
    const Answer of_base = base->Run({prompts[i].tokens}, own)[0];
    ASSERT_EQ(SameBits(answers[i], of_base), prompts[i].adapter == nullptr) << "row " << i;
  }
}

// The launches of a step, or its loops on a CPU, are at most two more for each layer than those of
// a step without adapters.
TEST_P(AdapterInvarianceTest, AStepWith64AdaptersHasTwoMoreLaunchesForEachLayer) {
  const auto model = RandomModelWithAdapters(config_, 23, kernels::DType::kF32, kAdapters);
  const auto without = RandomModel(config_, 23, kernels::DType::kF32);
  const auto launches = [&](const std::shared_ptr<const Model>& of, int distinct) {
    const auto runner = MakeRunner(of, 2);
    std::vector<std::unique_ptr<const LoadedAdapter>> adapters;
    for (int i = 0; i < distinct; ++i) {
      adapters.push_back(Load(*runner, **of->adapters[i].read()));
    }
    std::vector<Prompt> prompts;
    for (int i = 0; i < kAdapters; ++i) {
      const auto* const adapter = distinct == 0 ? nullptr : adapters[i % distinct].get();
      prompts.push_back({.tokens = {1, 2}, .adapter = adapter});
    }
    const int64_t before = LaunchesOfBackends();
    runner->Run(prompts, kLargest);
    return LaunchesOfBackends() - before;
  };
  int64_t layers = 0;
  for (const GraphOp& op : model->graph.ops) {
    const auto* const linear = std::get_if<LinearOp>(&op);
    const auto* const embedding = std::get_if<EmbedOp>(&op);
    if (linear != nullptr && linear->adaptable()) ++layers;
    if (embedding != nullptr && embedding->adaptable()) ++layers;
  }
  const int64_t one = launches(model, 1), all = launches(model, kAdapters);
  EXPECT_LE(one, all);
  EXPECT_GT(all, launches(without, 0));
  EXPECT_LE(all, launches(model, 0) + 2 * layers);
}

// Returns the kinds of models; those in int4 only if the backend has them.
std::vector<std::string> Kinds() {
  std::vector<std::string> kinds = {"dense", "encoder", "position_wise", "int8"};
  for (const std::string& kind : EffortOfTests().quantized) {
    if (kind == "int4_dense") kinds.push_back("int4");
  }
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Profiles, AdapterInvarianceTest,
                         ::testing::Combine(::testing::ValuesIn(SupportedProfiles()),
                                            ::testing::ValuesIn(Kinds())),
                         [](const auto& test) {
                           return TestName(std::get<0>(test.param) + "_" + std::get<1>(test.param));
                         });

}  // namespace
}  // namespace sluice::testing
