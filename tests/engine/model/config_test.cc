#include "engine/model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/checkpoint_writer.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kBase[] = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 300,
  "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 64,
  "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16"})";

// The base with `patch` merged in (RFC 7396: null removes a key).
std::string Patched(const std::string& patch) {
  nlohmann::json config = nlohmann::json::parse(kBase);
  config.merge_patch(nlohmann::json::parse(patch));
  return config.dump();
}

ModelConfig Parse(const std::string& patch) {
  auto config = ParseModelConfig(Patched(patch));
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : ModelConfig();
}

TEST(ConfigTest, DefaultsOfAPlainLlama) {
  const ModelConfig config =
      Parse(R"({"num_key_value_heads": null, "rms_norm_eps": null, "hidden_act": null})");
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.norm.eps, 1e-6f);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_FALSE(config.rope.llama3.has_value());
  EXPECT_FALSE(config.tie_word_embeddings || config.qkv_bias || config.mlp_bias);
  EXPECT_TRUE(config.causal);
  EXPECT_EQ(config.bos_token_id, -1);
  EXPECT_THAT(config.eos_token_ids, IsEmpty());
  EXPECT_FALSE(config.position_wise.Any() || config.xsa.Any() || config.byte_tokenizer);
}

TEST(ConfigTest, NullMeansAbsent) {
  nlohmann::json config = nlohmann::json::parse(kBase);
  for (const char* key : {"head_dim", "rope_scaling", "sliding_window", "quantization_config",
                          "eos_token_id", "bos_token_id", "sluice"}) {
    config[key] = nullptr;
  }
  EXPECT_TRUE(ParseModelConfig(config.dump()).ok());
}

TEST(ConfigTest, EosIsOneOrSeveral) {
  EXPECT_THAT(Parse(R"({"eos_token_id": 2})").eos_token_ids, ElementsAre(2));
  EXPECT_THAT(Parse(R"({"eos_token_id": [2, 7, 299]})").eos_token_ids, ElementsAre(2, 7, 299));
}

TEST(ConfigTest, HeadDimMayDifferFromHiddenOverHeads) {
  EXPECT_EQ(Parse(R"({"head_dim": 12})").head_dim, 12);
  EXPECT_EQ(Parse(R"({"head_dim": 16, "hidden_size": 33})").head_dim, 16);
}

TEST(ConfigTest, BothFormsOfRopeMeanTheSame) {
  const char* const classic = R"({"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3",
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16}})";
  const char* const older = R"({"rope_theta": 500000.0, "rope_scaling": {"type": "llama3",
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16}})";
  const char* const newer = R"({"torch_dtype": null, "dtype": "float16", "rope_parameters": {
    "rope_theta": 500000.0, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 16}})";
  for (const char* patch : {classic, older, newer}) {
    SCOPED_TRACE(patch);
    const RopeConfig rope = Parse(patch).rope;
    EXPECT_EQ(rope.theta, 500000.0);
    ASSERT_TRUE(rope.llama3.has_value());
    EXPECT_EQ(rope.llama3->factor, 8.0);
    EXPECT_EQ(rope.llama3->low_freq_factor, 1.0);
    EXPECT_EQ(rope.llama3->high_freq_factor, 4.0);
    EXPECT_EQ(rope.llama3->original_max_positions, 16);
  }
  const RopeConfig plain =
      Parse(R"({"rope_parameters": {"rope_theta": 7.5, "rope_type": "default"}})").rope;
  EXPECT_EQ(plain.theta, 7.5);
  EXPECT_FALSE(plain.llama3.has_value());
}

TEST(ConfigTest, PositionWise) {
  const ModelConfig config = Parse(R"({"sluice": {"position_wise": {
    "projections": {"q": [2], "v": [0, 1]}, "max_positions": 16, "bias": "le"}}})");
  EXPECT_TRUE(config.position_wise.Any());
  EXPECT_THAT(config.position_wise.layers[static_cast<int>(Projection::kQ)],
              ElementsAre(false, false, true));
  EXPECT_THAT(config.position_wise.layers[static_cast<int>(Projection::kK)],
              ElementsAre(false, false, false));
  EXPECT_THAT(config.position_wise.layers[static_cast<int>(Projection::kV)],
              ElementsAre(true, true, false));
  EXPECT_EQ(config.position_wise.bias, PositionWiseBias::kPositionFeature);
  EXPECT_EQ(config.position_wise.max_positions, 16);
  EXPECT_EQ(config.max_positions, 16);  // of 64
  EXPECT_EQ(Parse(R"({"sluice": {"position_wise": {"projections": {"q": [2]},
                     "max_positions": 100}}})")
                .max_positions,
            64);
}

TEST(ConfigTest, Xsa) {
  const ModelConfig config = Parse(
      R"({"sluice": {"tokenizer": "byte", "xsa": {"layers": [1], "form": "squared", "eps": 1e-8,
          "gate": "tanh"}}})");
  EXPECT_THAT(config.xsa.layers, ElementsAre(false, true, false));
  EXPECT_EQ(config.xsa.form, XsaConfig::Form::kSquared);
  EXPECT_EQ(config.xsa.eps, 1e-8f);
  EXPECT_TRUE(config.xsa.gate);
  EXPECT_TRUE(config.byte_tokenizer);
}

TEST(ConfigTest, WriterRoundTrip) {
  ModelConfig config = testing::TinyConfig(2);
  config.vocab_size = 256;
  config.byte_tokenizer = true;
  config.bos_token_id = 5;
  config.eos_token_ids = {9};
  config.rope.llama3 = {8.0, 1.0, 4.0, 16};
  config.position_wise.layers[1][1] = true;
  config.position_wise.max_positions = 12;
  config.position_wise.bias = PositionWiseBias::kFeature;
  config.xsa.layers[0] = true;
  config.xsa.gate = true;
  const std::string json = testing::ConfigJson(config);
  auto parsed = ParseModelConfig(json);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->max_positions, 12);
  parsed->max_positions = config.max_positions;
  EXPECT_EQ(testing::ConfigJson(*parsed), json);
}

struct Bad {
  const char* patch;
  const char* message;
};

class BadConfigTest : public ::testing::TestWithParam<Bad> {};

TEST_P(BadConfigTest, IsRefusedByName) {
  SCOPED_TRACE(GetParam().patch);
  const auto config = ParseModelConfig(Patched(GetParam().patch));
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(config.status().message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Shape, BadConfigTest,
    ::testing::Values(
        Bad{R"({"hidden_size": null})", "hidden_size is missing"},
        Bad{R"({"hidden_size": 0})", "hidden_size is 0, must be in [1, 65536]"},
        Bad{R"({"hidden_size": 65540})", "hidden_size is 65540, must be in [1, 65536]"},
        Bad{R"({"hidden_size": -1})", "hidden_size is -1"},
        Bad{R"({"hidden_size": 32.0})", "hidden_size is not an integer"},
        Bad{R"({"hidden_size": "32"})", "hidden_size is not an integer"},
        Bad{R"({"hidden_size": true})", "hidden_size is not an integer"},
        Bad{R"({"hidden_size": 18446744073709551615})", "hidden_size is 18446744073709551615"},
        Bad{R"({"num_hidden_layers": 2147483648})",
            "num_hidden_layers is 2147483648, must be in [1, 1024]"},
        Bad{R"({"max_position_embeddings": 1048576, "head_dim": 512})",
            "max_position_embeddings times head_dim is 536870912, must be at most 268435456"},
        Bad{R"({"hidden_size": 1e30})", "hidden_size is not an integer"},
        Bad{R"({"hidden_size": 30})", "num_attention_heads is 4, must divide hidden_size 30"},
        Bad{R"({"intermediate_size": 0})", "intermediate_size is 0"},
        Bad{R"({"num_hidden_layers": 1025})", "num_hidden_layers is 1025, must be in [1, 1024]"},
        Bad{R"({"vocab_size": 16777217})", "vocab_size is 16777217, must be in [1, 16777216]"},
        Bad{R"({"num_attention_heads": 0})", "num_attention_heads is 0"},
        Bad{R"({"num_key_value_heads": 3})", "num_key_value_heads is 3, must divide the 4"},
        Bad{R"({"num_key_value_heads": 8})", "num_key_value_heads is 8, must divide the 4"},
        Bad{R"({"head_dim": 7})", "head_dim is 7, must be even for RoPE"},
        Bad{R"({"head_dim": 1026})", "head_dim is 1026, must be in [1, 1024]"},
        Bad{R"({"hidden_size": 36})", "head_dim is 9, must be even"},
        Bad{R"({"num_attention_heads": 128, "head_dim": 1024})",
            "num_attention_heads times head_dim is 131072, must be at most 65536"},
        Bad{R"({"max_position_embeddings": 1048577})", "max_position_embeddings is 1048577"},
        Bad{R"({"rms_norm_eps": 0})", "rms_norm_eps is 0"},
        Bad{R"({"rms_norm_eps": -1e-5})", "rms_norm_eps is -1e-05"},
        Bad{R"({"rms_norm_eps": "small"})", "rms_norm_eps is not a number"},
        Bad{R"({"tie_word_embeddings": 1})", "tie_word_embeddings is not true or false"},
        Bad{R"({"bos_token_id": 300})", "bos_token_id is 300, must be in [0, 299]"},
        Bad{R"({"eos_token_id": [2, 300]})", "eos_token_id is 300, must be in [0, 299]"},
        Bad{R"({"eos_token_id": [[2]]})", "eos_token_id is not an integer"}));

INSTANTIATE_TEST_SUITE_P(
    Rope, BadConfigTest,
    ::testing::Values(
        Bad{R"({"rope_theta": 0})", "rope_theta is 0"},
        Bad{R"({"rope_theta": 1e300})", "rope_theta is 1e+300"},
        Bad{R"({"rope_scaling": "llama3"})", "rope_scaling is not an object"},
        Bad{R"({"rope_scaling": {"type": "linear", "factor": 2}})",
            "rope_scaling.type is not supported, must be one of: default, llama3"},
        Bad{R"({"rope_parameters": {"rope_type": "yarn", "factor": 2}})",
            "rope_parameters.rope_type is not supported"},
        Bad{R"({"rope_scaling": {"rope_type": "llama3"}})", "rope_scaling.factor is missing"},
        Bad{R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                "high_freq_factor": 4, "original_max_position_embeddings": 16}})",
            "rope_scaling.high_freq_factor must be above low_freq_factor"},
        Bad{R"({"rope_scaling": {"rope_type": "llama3", "factor": 0.5, "low_freq_factor": 1,
                "high_freq_factor": 4, "original_max_position_embeddings": 16}})",
            "rope_scaling.factor is 0.5"},
        Bad{R"({"rope_scaling": {"rope_type": "default"}, "rope_parameters": {}})",
            "rope_scaling and rope_parameters exclude each other"},
        Bad{R"({"rope_parameters": {"partial_rotary_factor": 0.5}})",
            "rope_parameters.partial_rotary_factor is 0.5"}));

INSTANTIATE_TEST_SUITE_P(
    Unsupported, BadConfigTest,
    ::testing::Values(
        Bad{R"({"architectures": ["MistralForCausalLM"]})",
            "architectures has none of those that are supported"},
        Bad{R"({"architectures": null})", "architectures has none of those that are supported"},
        Bad{R"({"architectures": "LlamaForCausalLM"})",
            "architectures has none of those that are supported"},
        Bad{R"({"model_type": "mixtral"})",
            "model_type is not supported, must be \"llama\" for LlamaForCausalLM"},
        Bad{R"({"hidden_act": "gelu"})", "hidden_act is not supported, must be one of: silu"},
        Bad{R"({"sliding_window": 128})", "sliding_window is not supported"},
        Bad{R"({"quantization_config": {"bits": 4}})", "quantization_config is not supported"},
        Bad{R"({"num_local_experts": 8})", "num_local_experts is not supported"},
        Bad{R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor is not supported"},
        Bad{R"({"layer_types": ["full_attention", "sliding_attention"]})", "layer_types"},
        Bad{R"({"torch_dtype": "float8_e4m3fn"})", "torch_dtype is not supported"},
        Bad{R"({"dtype": 7})", "dtype is not supported"}));

INSTANTIATE_TEST_SUITE_P(
    Extensions, BadConfigTest,
    ::testing::Values(
        Bad{R"({"sluice": []})", "sluice is not an object"},
        Bad{R"({"sluice": {"xas": {}}})", "sluice.xas is not a known key"},
        Bad{R"({"sluice": {"tokenizer": "bpe"}})", "sluice.tokenizer is not supported"},
        Bad{R"({"vocab_size": 255, "sluice": {"tokenizer": "byte"}})",
            "sluice.tokenizer byte needs a vocab_size of at least 256, not 255"},
        Bad{R"({"sluice": {"xsa": {"layers": [3]}}})", "sluice.xsa.layers is 3, must be in [0, 2]"},
        Bad{R"({"sluice": {"xsa": {"layers": [1, 1]}}})", "sluice.xsa.layers names 1 twice"},
        Bad{R"({"sluice": {"xsa": {"layers": 1}}})", "sluice.xsa.layers is not a list"},
        Bad{R"({"sluice": {"xsa": {"eps": 0}}})", "sluice.xsa.eps is 0"},
        Bad{R"({"sluice": {"xsa": {"form": "cubed"}}})", "sluice.xsa.form is not supported"},
        Bad{R"({"sluice": {"xsa": {"gate": true}}})", "sluice.xsa.gate is not supported"},
        Bad{R"({"sluice": {"xsa": {"alpha": 1}}})", "sluice.xsa.alpha is not a known key"},
        Bad{R"({"sluice": {"position_wise": {"projections": {"v": [0]}}}})",
            "sluice.position_wise.max_positions is missing"},
        Bad{R"({"sluice": {"position_wise": {"max_positions": 0}}})",
            "sluice.position_wise.max_positions is 0"},
        Bad{R"({"sluice": {"position_wise": {"max_positions": 8, "bias": "l"}}})",
            "sluice.position_wise.bias is not supported"},
        Bad{R"({"sluice": {"position_wise": {"max_positions": 8, "projections": {"x": [0]}}}})",
            "sluice.position_wise.projections.x is not a known key"},
        Bad{R"({"sluice": {"position_wise": {"max_positions": 8, "projections": {"q": [-1]}}}})",
            "sluice.position_wise.projections.q is -1"}));

TEST(ConfigTest, EosTokensAreFew) {
  nlohmann::json config = nlohmann::json::parse(kBase);
  config["eos_token_id"] = std::vector<int>(256, 7);
  EXPECT_TRUE(ParseModelConfig(config.dump()).ok());
  config["eos_token_id"].push_back(7);
  EXPECT_EQ(ParseModelConfig(config.dump()).status(),
            absl::InvalidArgumentError("eos_token_id names 257 tokens, the limit is 256"));
}

TEST(ConfigTest, RefusesWhatIsNoCleanJson) {
  const struct {
    std::string text;
    const char* message;
  } cases[] = {
      {"", "bad JSON syntax"},
      {"{", "bad JSON syntax"},
      {"[]", "is not a JSON object"},
      {"\"\\ud800\"", "bad JSON syntax"},
      {R"({"a": 1e999})", "bad JSON"},
      {R"({"a": 1, "a": 1})", "key \"a\" appears twice"},
      {R"({"x": {"b": 1, "b": 2}})", "key \"b\" appears twice"},
      {R"({"hidden_size": NaN})", "bad JSON syntax"},
      {R"({"rms_norm_eps": -Infinity})", "bad JSON syntax"},
      {"{\"model_type\": \"\xff\"}", "bad JSON syntax"},
      {std::string("{\"a\": 1\0}", 9), "bad JSON syntax"},
      {std::string(100000, '['), "nested deeper than 16"},
      {R"({"a": [[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]})", "nested deeper than 16"},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.text.substr(0, 100));
    const auto config = ParseModelConfig(bad.text);
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(bad.message));
  }
}

}  // namespace
}  // namespace sluice
