#include "engine/model/quantization.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "engine/model/config.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/table.h"

namespace sluice::testing {
namespace {

using nlohmann::json;

// Returns the quantization_config of a checkpoint in int8, as compressed-tensors writes it.
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

TEST(QuantizationConfigTest, NothingIsQuantisedUnlessItIsAskedFor) {
  const auto config = Parse(nullptr, json::object());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->quantization, QuantizationConfig());
  EXPECT_EQ(config->quantization.projections, Quantization::kNone);
}

TEST(QuantizationConfigTest, ReadsWhatIsAskedFor) {
  const auto config = Parse(nullptr, {{"quantization", "int8"}});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->quantization, (QuantizationConfig{Quantization::kInt8, false}));
  EXPECT_TRUE(
      Parse(nullptr, {{"quantization", "int8"}, {"quantize_head", true}})->quantization.head);
}

TEST(QuantizationConfigTest, AcceptsACheckpointInInt8) {
  const auto config = Parse(Stored(), json::object());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->quantization, QuantizationConfig());  // the tensors' dtypes say which
}

struct QuantizationRow {
  const char* name;
  const char* path;  // in quantization_config
  json value;
  const char* error;
};
class QuantizationTable : public TableTest<QuantizationRow> {};

TEST_P(QuantizationTable, WhatIsNotComputedIsRefused) {
  json stored = Stored();
  stored[json::json_pointer(row().path)] = row().value;
  EXPECT_EQ(Parse(stored, json::object()).status().message(), row().error);
}

const QuantizationRow kQuantizationRows[] = {
    {.name = "AnotherMethod",
     .path = "/quant_method",
     .value = "bitsandbytes",
     .error = "quantization_config.quant_method is not supported, must be \"compressed-tensors\""},
    {.name = "AnotherFormat",
     .path = "/format",
     .value = "float-quantized",
     .error = "quantization_config.format is not supported, must be \"int-quantized\""},
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

TEST(QuantizationConfigTest, TheHeadIsNotQuantisedAlone) {
  EXPECT_EQ(Parse(nullptr, {{"quantize_head", true}}).status().message(),
            "sluice.quantize_head needs quantization \"int8\"");
}

}  // namespace
}  // namespace sluice::testing
