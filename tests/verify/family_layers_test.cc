// Compares every layer of each family with the values that transformers computes
// (tests/goldens/families), as `sluice verify` does.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/model/model.h"
#include "tests/support/golden_file.h"
#include "tests/support/temporary_directory.h"
#include "verify/comparison.h"

namespace sluice::verify {
namespace {

using nlohmann::json;
using sluice::testing::FamilyGoldens;
using sluice::testing::GoldenFile;
using sluice::testing::GoldenPath;

// The tolerance of states, logits and scores, relative to the larger of the value and the root mean
// square of the output.
constexpr double kTolerance = 1e-5;

// Returns rows of sequences, one after another, as [n, longest + padding, width].
Array Padded(const GoldenFile& file, const std::string& name, const std::vector<int32_t>& lengths,
             int64_t padding) {
  const std::vector<float> values = file.Floats(name);
  const int64_t width = file.Shape(name)[1];
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end()) + padding;
  Array array = {.shape = {std::ssize(lengths), longest, width}, .values = {}};
  auto from = values.begin();
  for (const int32_t length : lengths) {
    array.values.insert(array.values.end(), from, from + length * width);
    array.values.resize(array.values.size() + (longest - length) * width);
    from += length * width;
  }
  return array;
}

Golden GoldenOf(const std::string& name, int64_t padding = 0) {
  const GoldenFile file(GoldenPath(name + "/expected.safetensors"));
  const std::vector<int32_t> lengths = file.Ints("lengths"), ids = file.Ints("input_ids");
  Golden golden;
  auto first = ids.begin();
  for (const int32_t length : lengths) {
    golden.sequences.emplace_back(first, first + length);
    first += length;
  }
  for (int64_t k = 0; file.Has("state_" + std::to_string(k)); ++k) {
    const std::string state = "state_" + std::to_string(k);
    golden.outputs[state] = Padded(file, state, lengths, padding);
  }
  if (file.Has("states")) golden.outputs["final"] = Padded(file, "states", lengths, padding);
  for (const char* const output : {"logits", "token_scores"}) {
    if (file.Has(output)) golden.outputs[output] = Padded(file, output, lengths, padding);
  }
  for (const char* const output : {"scores", "embedding"}) {
    if (!file.Has(output)) continue;
    const std::vector<float> values = file.Floats(output);
    golden.sequence_outputs[output] = {.shape = file.Shape(output),
                                       .values = {values.begin(), values.end()}};
  }
  return golden;
}

class FamilyLayersTest : public ::testing::TestWithParam<std::string> {};

TEST_P(FamilyLayersTest, EveryLayerEqualsTransformers) {
  const std::string name = "families/" + GetParam();
  const auto model = LoadModel(name, 1, GoldenPath(name));
  ASSERT_TRUE(model.ok()) << model.status();
  const auto comparison = Compare(*model, GoldenOf(name), {});
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_TRUE(comparison->unknown.empty());
  EXPECT_TRUE(comparison->unproven.empty());
  EXPECT_EQ(comparison->missing_answer, "");
  EXPECT_GT(std::ssize(comparison->outputs), (*model)->config.layers);
  for (const Worst& worst : comparison->outputs) {
    EXPECT_LE(worst.error, kTolerance)
        << worst.name << " of sequence " << worst.sequence << " at " << worst.position << ": "
        << worst.got << ", not " << worst.want;
  }
}

// Errors are relative to the values of sequences. The zeros after them do not count.
TEST(FamilyErrorsTest, PaddingChangesNoError) {
  const std::string name = "families/qwen2_2";
  const auto model = LoadModel(name, 1, GoldenPath(name));
  ASSERT_TRUE(model.ok()) << model.status();
  const auto tight = Compare(*model, GoldenOf(name), {});
  const auto wide = Compare(*model, GoldenOf(name, 40), {});
  ASSERT_TRUE(tight.ok() && wide.ok());
  ASSERT_EQ(tight->outputs.size(), wide->outputs.size());
  EXPECT_TRUE(
      std::ranges::any_of(tight->outputs, [](const Worst& each) { return each.error > 0; }));
  for (size_t i = 0; i < tight->outputs.size(); ++i) {
    EXPECT_EQ(tight->outputs[i].error, wide->outputs[i].error) << tight->outputs[i].name;
  }
}

// Changes a config as if the daemon read it wrongly. Returns false if the config has nothing to
// change.
using Fault = bool (*)(json& config);

bool WidenTheWindow(json& config) {
  const char* const key = config.contains("local_attention") ? "local_attention" : "sliding_window";
  // Layers have windows by their types, or all of them. A window in both directions is halved.
  const bool used = config.contains("layer_types") || config["model_type"] == "mistral";
  if (!used || !config.contains(key) || config[key].is_null()) return false;
  config[key] = config[key].get<int>() + 2;
  return true;
}

bool SwapTheBases(json& config) {
  json& bases = config["rope_parameters"];
  if (!bases.contains("sliding_attention")) return false;
  json& local = bases["sliding_attention"];
  json& whole = bases["full_attention"];
  if (local["rope_theta"] == whole["rope_theta"]) return false;
  std::swap(local, whole);
  return true;
}

bool ForgetTheOffsetOfPositions(json& config) {
  constexpr const char* kOffset[] = {"roberta", "xlm-roberta", "camembert", "mpnet"};
  if (std::ranges::find(kOffset, config["model_type"]) == std::end(kOffset)) return false;
  if (config.value("position_embedding_type", "absolute") == "rotary") return false;
  config["pad_token_id"] = 0;
  return true;
}

bool AgreesWithGolden(const std::shared_ptr<const Model>& model, const std::string& name) {
  const auto comparison = Compare(model, GoldenOf(name), {});
  EXPECT_TRUE(comparison.ok()) << comparison.status();
  return comparison.ok() && std::ranges::all_of(comparison->outputs, [](const Worst& worst) {
           return worst.error <= kTolerance;
         });
}

// The goldens expose a model that is read in another way than it was trained.
TEST(FamilyFaultsTest, GoldensExposeReadingFaults) {
  for (const Fault fault : {WidenTheWindow, SwapTheBases, ForgetTheOffsetOfPositions}) {
    int planted = 0;
    for (const std::string& family : FamilyGoldens()) {
      const std::string name = "families/" + family;
      std::ifstream original(GoldenPath(name + "/config.json"));
      json config = json::parse(original);
      if (!fault(config)) continue;
      SCOPED_TRACE(family);
      ++planted;
      const TemporaryDirectory folder;
      std::filesystem::copy(GoldenPath(name + "/model.safetensors"),
                            folder.File("model.safetensors"));
      std::ofstream(folder.File("config.json")) << config.dump();
      const auto model = LoadModel(name, 1, folder.File(""));
      ASSERT_TRUE(model.ok()) << model.status();
      EXPECT_FALSE(AgreesWithGolden(*model, name));
    }
    EXPECT_GE(planted, 3);
  }
}

TEST(FamilyFaultsTest, GoldensExposeNormsWithoutWeightOffset) {
  for (const std::string name : {"families/gemma_1", "families/gemma2_1", "families/gemma3_1"}) {
    SCOPED_TRACE(name);
    const auto model = LoadModel(name, 1, GoldenPath(name));
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_TRUE(AgreesWithGolden(*model, name));
    int planted = 0;
    for (GraphOp& op : std::const_pointer_cast<Model>(*model)->graph.ops) {
      auto* const norm = std::get_if<NormOp>(&op);
      if (norm != nullptr) planted += std::exchange(norm->weight_offset, 0.0f) == 1 ? 1 : 0;
    }
    EXPECT_GT(planted, 0);
    EXPECT_FALSE(AgreesWithGolden(*model, name));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyLayersTest, ::testing::ValuesIn(FamilyGoldens()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace sluice::verify
