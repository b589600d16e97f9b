#include "engine/model/quantization.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/model/config.h"
#include "engine/model/model.h"
#include "kernels/dtype.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/table.h"
#include "tests/support/temporary_directory.h"

namespace sluice::testing {
namespace {

using nlohmann::json;

// Returns the quantization_config of a checkpoint in int8, in the format of compressed-tensors.
json Stored() {
  return json::parse(R"({
    "quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"],
    "kv_cache_scheme": null, "quantization_status": "compressed", "global_compression_ratio": 1.4,
    "config_groups": {"group_0": {
      "targets": ["Linear"], "output_activations": null,
      "weights": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel",
                  "dynamic": false, "group_size": null, "observer": "minmax", "actorder": null},
      "input_activations": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "token",
                            "dynamic": true, "group_size": null}}}})");
}

absl::StatusOr<ModelConfig> Parse(const json& quantization_config, const json& sluice) {
  json root = json::parse(ConfigJson(TinyConfig(1)));
  if (!quantization_config.is_null()) root["quantization_config"] = quantization_config;
  root["sluice"].update(sluice);
  return ParseModelConfig(root.dump());
}

TEST(QuantizationConfigTest, NothingIsQuantisedByDefault) {
  const auto config = Parse(nullptr, json::object());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->quantization, QuantizationConfig());
  EXPECT_EQ(config->quantization.projections, Quantization::kNone);
}

TEST(QuantizationConfigTest, ReadsTheRequestedQuantization) {
  const auto config = Parse(nullptr, {{"quantization", "int8"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->quantization, (QuantizationConfig{Quantization::kInt8, false}));
  EXPECT_TRUE(
      Parse(nullptr, {{"quantization", "int8"}, {"quantize_head", true}})->quantization.head);
}

TEST(QuantizationConfigTest, AcceptsACheckpointInInt8) {
  const auto config = Parse(Stored(), json::object());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->quantization, QuantizationConfig());  // the tensors' dtypes determine it
  EXPECT_EQ(config->stored_quantization.format, StoredQuantization::Format::kInt8);
}

struct QuantizationRow {
  const char* name;
  const char* path;  // in quantization_config
  json value;
  const char* error;
};
class QuantizationTable : public TableTest<QuantizationRow> {};

TEST_P(QuantizationTable, RefusesUnsupportedFormats) {
  json stored = Stored();
  stored[json::json_pointer(row().path)] = row().value;
  EXPECT_EQ(Parse(stored, json::object()).status().message(), row().error);
}

const QuantizationRow kQuantizationRows[] = {
    {.name = "AnotherMethod",
     .path = "/quant_method",
     .value = "bitsandbytes",
     .error = "quantization_config.quant_method is not supported, must be \"compressed-tensors\", "
              "\"awq\" or \"gptq\""},
    {.name = "AnotherFormat",
     .path = "/format",
     .value = "float-quantized",
     .error = "quantization_config.format is not supported, must be \"int-quantized\" or "
              "\"pack-quantized\""},
    {.name = "QuantisedKeysAndValues",
     .path = "/kv_cache_scheme",
     .value = {{"num_bits", 8}},
     .error = "quantization_config.kv_cache_scheme is not supported"},
    {.name = "FourBits",
     .path = "/config_groups/group_0/weights/num_bits",
     .value = 4,
     .error = "quantization_config.config_groups.group_0.weights.num_bits is not supported, must "
              "be 8"},
    {.name = "WeightsInGroups",
     .path = "/config_groups/group_0/weights/strategy",
     .value = "group",
     .error = "quantization_config.config_groups.group_0.weights.strategy is not supported, must "
              "be \"channel\""},
    {.name = "WeightsWithZeroPoints",
     .path = "/config_groups/group_0/weights/symmetric",
     .value = false,
     .error = "quantization_config.config_groups.group_0.weights.symmetric must be true"},
    {.name = "ActivationsWithAStaticScale",
     .path = "/config_groups/group_0/input_activations/dynamic",
     .value = false,
     .error = "quantization_config.config_groups.group_0.input_activations.dynamic must be true"},
    {.name = "ActivationsThatAreNotQuantised",
     .path = "/config_groups/group_0/input_activations",
     .value = nullptr,
     .error = "quantization_config.config_groups.group_0.input_activations is missing"},
    {.name = "NoGroups",
     .path = "/config_groups",
     .value = json::array(),
     .error = "quantization_config.config_groups must be an object"},
};
SLUICE_TABLE(QuantizationTable, kQuantizationRows);

TEST(QuantizationConfigTest, NamesOfGroupsAreEscapedInErrors) {
  json stored = Stored();
  json group = stored["config_groups"]["group_0"];
  group["weights"]["num_bits"] = 4;
  stored["config_groups"] = {{"a\x7f\n", group}};
  EXPECT_EQ(
      Parse(stored, json::object()).status().message(),
      "quantization_config.config_groups.a\\177\\n.weights.num_bits is not supported, must be "
      "8");
}

TEST(KvDtypeTest, IsReadAndNamedByTheProfile) {
  EXPECT_EQ(Parse(nullptr, json::object())->kv_dtype, KvType::kF32);
  const auto config = Parse(nullptr, {{"kv_dtype", "int8"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->kv_dtype, KvType::kInt8);
  EXPECT_EQ(KvSuffix(config->kv_dtype), "-kv-int8");
  EXPECT_EQ(KvSuffix(KvType::kF32), "");
  EXPECT_EQ(Parse(nullptr, {{"kv_dtype", "fp8"}}).status().message(),
            "sluice.kv_dtype is not supported, must be one of: f32, bf16, int8");
}

TEST(QuantizationConfigTest, ReadsGroupsOfInt4) {
  const auto config = Parse(nullptr, {{"quantization", "int4"}, {"quantization_group", 128}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->quantization, (QuantizationConfig{Quantization::kInt4, false, 128}));
  EXPECT_EQ(
      Parse(nullptr, {{"quantization", "int4"}, {"quantization_group", 48}}).status().message(),
      "sluice.quantization_group is 48, must be 32, 64 or 128");
  EXPECT_EQ(
      Parse(nullptr, {{"quantization", "int8"}, {"quantization_group", 32}}).status().message(),
      "sluice.quantization_group needs quantization \"int4\"");
}

// Returns a quantization_config with only int4 weights, in the format of compressed-tensors.
json Packed() {
  json stored = Stored();
  stored["format"] = "pack-quantized";
  json& group = stored["config_groups"]["group_0"];
  group["input_activations"] = nullptr;
  group["weights"].update({{"num_bits", 4}, {"strategy", "group"}, {"group_size", 128}});
  return stored;
}

TEST(QuantizationConfigTest, AcceptsCheckpointsInInt4) {
  using Format = StoredQuantization::Format;
  const auto read = [](const json& stored) {
    const auto config = Parse(stored, json::object());
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? config->stored_quantization : StoredQuantization();
  };
  EXPECT_EQ(read(Packed()), (StoredQuantization{Format::kPacked, 128, false}));
  json zeros = Packed();
  zeros["config_groups"]["group_0"]["weights"]["symmetric"] = false;
  EXPECT_EQ(read(zeros), (StoredQuantization{Format::kPacked, 128, true}));
  EXPECT_EQ(read({{"quant_method", "awq"},
                  {"bits", 4},
                  {"group_size", 64},
                  {"version", "gemm"},
                  {"zero_point", true}}),
            (StoredQuantization{Format::kAwq, 64, true}));
  EXPECT_EQ(read({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", -1}, {"desc_act", false}}),
            (StoredQuantization{Format::kGptq, 0, true}));
  EXPECT_EQ(read({{"quant_method", "gptq"},
                  {"bits", 4},
                  {"group_size", 32},
                  {"checkpoint_format", "gptq_v2"}}),
            (StoredQuantization{Format::kGptqV2, 32, true}));
}

struct Int4Row {
  const char* name;
  json stored;
  const char* error;
};
class Int4Table : public TableTest<Int4Row> {};

TEST_P(Int4Table, RefusesUnsupportedFormats) {
  EXPECT_EQ(Parse(row().stored, json::object()).status().message(), row().error);
}

json Changed(const char* path, const json& value) {
  json stored = Packed();
  stored[json::json_pointer(path)] = value;
  return stored;
}

const Int4Row kInt4Rows[] = {
    {.name = "EightBits",
     .stored = Changed("/config_groups/group_0/weights/num_bits", 8),
     .error = "quantization_config.config_groups.group_0.weights.num_bits is not supported, must "
              "be 4"},
    {.name = "Blocks",
     .stored = Changed("/config_groups/group_0/weights/strategy", "block"),
     .error = "quantization_config.config_groups.group_0.weights.strategy is not supported, must "
              "be \"group\" or \"channel\""},
    {.name = "OddGroups",
     .stored = Changed("/config_groups/group_0/weights/group_size", 48),
     .error = "quantization_config.config_groups.group_0.weights.group_size is 48, must be 32, 64 "
              "or a multiple of 128"},
    {.name = "Activations",
     .stored = Changed("/config_groups/group_0/input_activations", {{"num_bits", 8}}),
     .error = "quantization_config.config_groups.group_0.input_activations is not supported with "
              "weights of 4 bits"},
    {.name = "AwqOfThreeBits",
     .stored = {{"quant_method", "awq"}, {"bits", 3}, {"group_size", 64}},
     .error = "quantization_config.bits is not supported, must be 4"},
    {.name = "AnotherVersionOfAwq",
     .stored = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 64}, {"version", "gemv"}},
     .error = "quantization_config.version is not supported, must be \"gemm\""},
    {.name = "AnotherFormatOfGptq",
     .stored = {{"quant_method", "gptq"}, {"bits", 4}, {"checkpoint_format", "marlin"}},
     .error = "quantization_config.checkpoint_format is not supported, must be \"gptq\" or "
              "\"gptq_v2\""},
};
SLUICE_TABLE(Int4Table, kInt4Rows);

constexpr char kDeepest[] = "model.layers.0.mlp.down_proj.weight";

// Returns a model whose deepest layer has this number of inputs.
Model ModelOfDepth(int64_t depth, Quantization quantization) {
  Model model;
  model.config = TinyConfig(1);
  model.config.intermediate_size = depth;
  model.config.quantization.projections = quantization;
  model.graph = BuildGraph(model.config);
  return model;
}

std::string DepthError(int64_t depth, const std::string& remedy) {
  return absl::StrCat("tensor ", kDeepest, " has ", depth,
                      " inputs; a layer in int8 has at most 131072. ", remedy);
}

TEST(CheckInt8DepthTest, RefusesALayerWhoseSumsMayOverflow) {
  constexpr int64_t kMost = kernels::kMaxInt8Depth;
  EXPECT_EQ(CheckInt8Depth(ModelOfDepth(kMost, Quantization::kInt8)), absl::OkStatus());
  EXPECT_EQ(CheckInt8Depth(ModelOfDepth(kMost + 1, Quantization::kNone)), absl::OkStatus());
  EXPECT_EQ(CheckInt8Depth(ModelOfDepth(kMost + 1, Quantization::kInt4)), absl::OkStatus());
  EXPECT_EQ(CheckInt8Depth(ModelOfDepth(kMost + 1, Quantization::kInt8)).message(),
            DepthError(kMost + 1, "Set quantization to none or int4"));
}

TEST(CheckInt8DepthTest, RefusesAStoredLayerWhoseSumsMayOverflow) {
  constexpr int64_t kMost = kernels::kMaxInt8Depth;
  const TemporaryDirectory directory;
  WriteTestFile(directory.File("model.safetensors"),
                SafetensorsFile(std::vector<TensorBytes>{{kDeepest, "I8", {1}, "1"}}));
  for (const int64_t depth : {kMost, kMost + 1}) {
    Model model = ModelOfDepth(depth, Quantization::kNone);
    model.checkpoint = Checkpoint::OpenFile(directory.File("model.safetensors")).value();
    EXPECT_EQ(
        CheckInt8Depth(model).message(),
        depth == kMost ? "" : DepthError(depth, "Quantise the checkpoint without this layer"));
  }
}

TEST(LoadModelTest, RefusesInt8LayersWhoseSumsMayOverflow) {
  ModelConfig config = TinyConfig(1);
  config.intermediate_size = kernels::kMaxInt8Depth + 1;
  config.quantization.projections = Quantization::kInt8;
  const TemporaryDirectory directory;
  WriteTestFile(directory.File("config.json"), ConfigJson(config));
  // The check needs no tensor.
  WriteTestFile(directory.File("model.safetensors"),
                SafetensorsFile(std::vector<TensorBytes>{{"other", "BF16", {1}, "11"}}));
  EXPECT_EQ(LoadModel("m", 1, directory.path()).status().message(),
            DepthError(config.intermediate_size, "Set quantization to none or int4"));
}

TEST(QuantizationConfigTest, TheHeadIsOnlyQuantisedWithTheProjections) {
  EXPECT_EQ(Parse(nullptr, {{"quantize_head", true}}).status().message(),
            "sluice.quantize_head needs quantization \"int8\" or \"int4\"");
}

}  // namespace
}  // namespace sluice::testing
