#include "engine/model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/checkpoint_writer.h"
#include "tests/support/table.h"

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

// Returns the base config with `patch` merged in (RFC 7396: null removes a key).
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

TEST(ConfigTest, EosIsATokenOrAListOfTokens) {
  EXPECT_THAT(Parse(R"({"eos_token_id": 2})").eos_token_ids, ElementsAre(2));
  EXPECT_THAT(Parse(R"({"eos_token_id": [2, 7, 299]})").eos_token_ids, ElementsAre(2, 7, 299));
}

TEST(ConfigTest, TokensBeyondTheVocabularyAreIgnoredWithAWarning) {
  for (const char* const id : {"300", "50256", "-1"}) {
    const ModelConfig config =
        Parse(std::string(R"({"bos_token_id": )") + id + R"(, "eos_token_id": [2, )" + id + "]}");
    EXPECT_EQ(config.bos_token_id, -1) << id;
    EXPECT_THAT(config.eos_token_ids, ElementsAre(2)) << id;
    EXPECT_THAT(config.warnings,
                ElementsAre(std::string("bos_token_id names ") + id +
                                ", which is ignored: the vocabulary has ids 0 to 299",
                            HasSubstr("eos_token_id")));
  }
}

TEST(ConfigTest, UnknownKeysAreNamedInOneWarning) {
  EXPECT_THAT(Parse("{}").warnings, IsEmpty());
  EXPECT_THAT(Parse(R"({"initializer_range": 0.02, "pretraining_tp": 1, "top_k": 3,
                        "num_labels": 2})")
                  .warnings,
              IsEmpty());
  EXPECT_THAT(
      Parse(R"({"max_position_embedings": 9, "attention_mode": "bidirectional"})").warnings,
      ElementsAre(HasSubstr("check their spelling: attention_mode, max_position_embedings")));
  EXPECT_THAT(Parse(R"({"rope_scaling": {"type": "linear", "factor": 2, "fcator": 3}})").warnings,
              ElementsAre(HasSubstr("check their spelling: rope_scaling.fcator")));
  // A key of another family's class has no effect here.
  EXPECT_THAT(Parse(R"({"use_parallel_residual": false})").warnings,
              ElementsAre(HasSubstr("use_parallel_residual")));
  EXPECT_THAT(Parse(R"({"auto_map": {"AutoModel": "modeling.Model"}})").warnings,
              ElementsAre(HasSubstr("auto_map names code of this model")));
  nlohmann::json many = nlohmann::json::parse(kBase);
  for (int i = 0; i < 25; ++i) many["unknown_" + std::to_string(100 + i)] = i;
  EXPECT_THAT(ParseModelConfig(many.dump())->warnings,
              ElementsAre(HasSubstr("unknown_119 and 5 more")));
}

TEST(ConfigTest, IsCausalFalseMeansAttentionInBothDirections) {
  EXPECT_TRUE(Parse(R"({"is_causal": true})").causal);
  const ModelConfig config = Parse(R"({"is_causal": false})");
  EXPECT_FALSE(config.causal);
  EXPECT_THAT(config.warnings, IsEmpty());
  EXPECT_EQ(config.serving.pooling.all, std::vector<Pooling>{Pooling::kMean});
  // A window ends after `sliding_window` tokens on both sides.
  const ModelConfig windowed = Parse(R"({"architectures": ["MistralModel"], "model_type": "mistral",
                                         "sliding_window": 7, "is_causal": false})");
  EXPECT_FALSE(windowed.causal);
  EXPECT_EQ(windowed.window_of(0), 8);
}

TEST(ConfigTest, TheFirstKnownArchitectureOfTheListIsServed) {
  const ModelConfig config =
      Parse(R"({"architectures": ["MyModel", "MistralModel", "LlamaForCausalLM"],
                "model_type": "mistral"})");
  EXPECT_EQ(config.architecture, "MistralModel");
  EXPECT_FALSE(config.has_lm_head);
}

TEST(ConfigTest, AnUnknownArchitectureNamesTheMostSimilarOne) {
  const auto config = ParseModelConfig(Patched(R"({"architectures": ["LLaMAForCausalLM"]})"));
  EXPECT_THAT(std::string(config.status().message()),
              HasSubstr("\"LLaMAForCausalLM\" is not one; the most similar one is "
                        "LlamaForCausalLM, and docs/models.md lists all"));
}

TEST(ConfigTest, AnArchitectureThatResemblesNoneIsNotCompared) {
  const auto config = ParseModelConfig(Patched(R"({"architectures": ["Extractor"]})"));
  EXPECT_THAT(std::string(config.status().message()),
              HasSubstr("\"Extractor\" is not one; docs/models.md lists all"));
}

TEST(ConfigTest, AGlinerModelNamesTheConverter) {
  for (const char* const patch : {R"({"architectures": ["GLiNER2"]})",
                                  R"({"model_type": "extractor", "architectures": ["X"]})"}) {
    EXPECT_THAT(std::string(ParseModelConfig(Patched(patch)).status().message()),
                HasSubstr("python tools/convert FOLDER NEW_FOLDER"));
  }
}

TEST(ConfigTest, ActivationsHaveAllNamesOfTransformers) {
  EXPECT_EQ(Parse(R"({"hidden_act": "swish"})").activation, Activation::kSilu);
  EXPECT_EQ(Parse(R"({"hidden_act": "gelu_python"})").activation, Activation::kGelu);
  EXPECT_EQ(Parse(R"({"hidden_act": "gelu_accurate"})").activation, Activation::kGeluTanh);
}

TEST(ConfigTest, LabelsMayBeNumbers) {
  const ModelConfig config = Parse(
      R"({"architectures": ["LlamaForSequenceClassification"], "id2label": {"0": 1, "1": "b"}})");
  EXPECT_THAT(config.serving.classifier.names, ElementsAre("1", "b"));
}

TEST(ConfigTest, AnAutomaticDtypeIsReadFromTheTensors) {
  EXPECT_FALSE(Parse(R"({"torch_dtype": "auto"})").stored_in_bf16);
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

TEST(ConfigTest, ReadsThePositionWiseLayers) {
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
  EXPECT_EQ(config.max_positions, 16);  // fewer than the 64 of the config
  EXPECT_EQ(Parse(R"({"sluice": {"position_wise": {"projections": {"q": [2]},
                     "max_positions": 100}}})")
                .max_positions,
            64);
}

TEST(ConfigTest, ReadsTheXsaLayers) {
  const ModelConfig config = Parse(
      R"({"sluice": {"tokenizer": "byte", "xsa": {"layers": [1], "form": "squared", "eps": 1e-8,
          "gate": "tanh"}}})");
  EXPECT_THAT(config.xsa.layers, ElementsAre(false, true, false));
  EXPECT_EQ(config.xsa.form, XsaConfig::Form::kSquared);
  EXPECT_EQ(config.xsa.eps, 1e-8f);
  EXPECT_TRUE(config.xsa.gate);
  EXPECT_TRUE(config.byte_tokenizer);
}

TEST(ConfigTest, RoundTripsTheWritersConfig) {
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

// The patch is a JSON merge patch of the base config.
struct BadConfigRow {
  const char* name;
  const char* patch;
  const char* error;
};
class BadConfigTable : public TableTest<BadConfigRow> {};

TEST_P(BadConfigTable, TheErrorNamesTheFault) {
  const auto config = ParseModelConfig(Patched(row().patch));
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(config.status().message()), HasSubstr(row().error));
}

const BadConfigRow kBadConfigRows[] = {
    {.name = "AMissingHiddenSizeIsRefused",
     .patch = R"({"hidden_size": null})",
     .error = "hidden_size is missing"},
    {.name = "AHiddenSizeOfZeroIsRefused",
     .patch = R"({"hidden_size": 0})",
     .error = "hidden_size is 0, must be in [1, 65536]"},
    {.name = "AHiddenSizeThatIsTooLargeIsRefused",
     .patch = R"({"hidden_size": 65540})",
     .error = "hidden_size is 65540, must be in [1, 65536]"},
    {.name = "ANegativeHiddenSizeIsRefused",
     .patch = R"({"hidden_size": -1})",
     .error = "hidden_size is -1"},
    {.name = "AFractionalHiddenSizeIsRefused",
     .patch = R"({"hidden_size": 32.0})",
     .error = "hidden_size is not an integer"},
    {.name = "AHiddenSizeThatIsATextIsRefused",
     .patch = R"({"hidden_size": "32"})",
     .error = "hidden_size is not an integer"},
    {.name = "AHiddenSizeThatIsABooleanIsRefused",
     .patch = R"({"hidden_size": true})",
     .error = "hidden_size is not an integer"},
    {.name = "AHiddenSizeOf64BitsIsRefused",
     .patch = R"({"hidden_size": 18446744073709551615})",
     .error = "hidden_size is 18446744073709551615"},
    {.name = "ANumberOfLayersBeyond32BitsIsRefused",
     .patch = R"({"num_hidden_layers": 2147483648})",
     .error = "num_hidden_layers is 2147483648, must be in [1, 1024]"},
    {.name = "AProductOfPositionsAndHeadDimThatIsTooLargeIsRefused",
     .patch = R"({"max_position_embeddings": 1048576, "head_dim": 512})",
     .error = "max_position_embeddings times head_dim is 536870912, must be at most 268435456"},
    {.name = "AHiddenSizeWithAnExponentIsRefused",
     .patch = R"({"hidden_size": 1e30})",
     .error = "hidden_size is not an integer"},
    {.name = "AHiddenSizeThatHeadsDoNotDivideIsRefused",
     .patch = R"({"hidden_size": 30})",
     .error = "num_attention_heads is 4, must divide hidden_size 30"},
    {.name = "AnIntermediateSizeOfZeroIsRefused",
     .patch = R"({"intermediate_size": 0})",
     .error = "intermediate_size is 0"},
    {.name = "ANumberOfLayersThatIsTooLargeIsRefused",
     .patch = R"({"num_hidden_layers": 1025})",
     .error = "num_hidden_layers is 1025, must be in [1, 1024]"},
    {.name = "AVocabSizeThatIsTooLargeIsRefused",
     .patch = R"({"vocab_size": 16777217})",
     .error = "vocab_size is 16777217, must be in [1, 16777216]"},
    {.name = "ZeroHeadsAreRefused",
     .patch = R"({"num_attention_heads": 0})",
     .error = "num_attention_heads is 0"},
    {.name = "KvHeadsThatDoNotDivideTheHeadsAreRefused",
     .patch = R"({"num_key_value_heads": 3})",
     .error = "num_key_value_heads is 3, must divide the 4"},
    {.name = "MoreKvHeadsThanHeadsAreRefused",
     .patch = R"({"num_key_value_heads": 8})",
     .error = "num_key_value_heads is 8, must divide the 4"},
    {.name = "AnOddHeadDimIsRefused",
     .patch = R"({"head_dim": 7})",
     .error = "head_dim is 7, must be even for RoPE"},
    {.name = "AHeadDimThatIsTooLargeIsRefused",
     .patch = R"({"head_dim": 1026})",
     .error = "head_dim is 1026, must be in [1, 1024]"},
    {.name = "AHeadDimThatIsOddByDivisionIsRefused",
     .patch = R"({"hidden_size": 36})",
     .error = "head_dim is 9, must be even"},
    {.name = "AProductOfHeadsAndHeadDimThatIsTooLargeIsRefused",
     .patch = R"({"num_attention_heads": 128, "head_dim": 1024})",
     .error = "num_attention_heads times head_dim is 131072, must be at most 65536"},
    {.name = "ANumberOfPositionsThatIsTooLargeIsRefused",
     .patch = R"({"max_position_embeddings": 1048577})",
     .error = "max_position_embeddings is 1048577"},
    {.name = "AnEpsOfZeroIsRefused",
     .patch = R"({"rms_norm_eps": 0})",
     .error = "rms_norm_eps is 0"},
    {.name = "ANegativeEpsIsRefused",
     .patch = R"({"rms_norm_eps": -1e-5})",
     .error = "rms_norm_eps is -1e-05"},
    {.name = "AnEpsThatIsATextIsRefused",
     .patch = R"({"rms_norm_eps": "small"})",
     .error = "rms_norm_eps is not a number"},
    {.name = "ANumberForTiedEmbeddingsIsRefused",
     .patch = R"({"tie_word_embeddings": 1})",
     .error = "tie_word_embeddings is not true or false"},
    {.name = "AListOfListsForEosIsRefused",
     .patch = R"({"eos_token_id": [[2]]})",
     .error = "eos_token_id is not an integer"},
    {.name = "ARopeThetaOfZeroIsRefused",
     .patch = R"({"rope_theta": 0})",
     .error = "rope_theta is 0"},
    {.name = "ARopeThetaThatIsTooLargeIsRefused",
     .patch = R"({"rope_theta": 1e300})",
     .error = "rope_theta is 1e+300"},
    {.name = "ARopeThetaOfOneIsRefusedForYarn",
     .patch = R"({"rope_theta": 1, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                  "original_max_position_embeddings": 64}})",
     .error = "rope_theta must be above 1 for yarn"},
    {.name = "ARopeScalingThatIsATextIsRefused",
     .patch = R"({"rope_scaling": "llama3"})",
     .error = "rope_scaling is not an object"},
    {.name = "ARopeScalingOfAnUnsupportedTypeIsRefused",
     .patch = R"({"rope_scaling": {"type": "dynamic", "factor": 2}})",
     .error = "rope_scaling.type is not supported, must be one of: default, llama3, linear"},
    {.name = "RopeParametersOfAnUnsupportedTypeAreRefused",
     .patch = R"({"rope_parameters": {"rope_type": "ntk", "factor": 2}})",
     .error = "rope_parameters.rope_type is not supported"},
    {.name = "AMissingRopeFactorIsRefused",
     .patch = R"({"rope_scaling": {"rope_type": "llama3"}})",
     .error = "rope_scaling.factor is missing"},
    {.name = "EqualRopeFrequencyFactorsAreRefused",
     .patch = R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                "high_freq_factor": 4, "original_max_position_embeddings": 16}})",
     .error = "rope_scaling.high_freq_factor must be above low_freq_factor"},
    {.name = "ARopeFactorBelowOneIsRefused",
     .patch = R"({"rope_scaling": {"rope_type": "llama3", "factor": 0.5, "low_freq_factor": 1,
                "high_freq_factor": 4, "original_max_position_embeddings": 16}})",
     .error = "rope_scaling.factor is 0.5"},
    {.name = "RopeInBothFormsIsRefused",
     .patch = R"({"rope_scaling": {"rope_type": "default"}, "rope_parameters": {}})",
     .error = "rope_scaling and rope_parameters are both set; set only one"},
    {.name = "RopeOfHalfAHeadIsRefused",
     .patch = R"({"rope_parameters": {"partial_rotary_factor": 0.5}})",
     .error = "rope_parameters.partial_rotary_factor is 0.5"},
    {.name = "AnUnsupportedArchitectureIsRefused",
     .patch = R"({"architectures": ["FalconForCausalLM"]})",
     .error = "architectures has no supported architecture"},
    {.name = "AMissingListOfArchitecturesOfAnUnknownTypeIsRefused",
     .patch = R"({"architectures": null, "model_type": "falcon"})",
     .error = "architectures has no supported architecture"},
    {.name = "ATextForArchitecturesIsRefused",
     .patch = R"({"architectures": "LlamaForCausalLM"})",
     .error = "architectures has no supported architecture"},
    {.name = "AModelTypeOfAnotherArchitectureIsRefused",
     .patch = R"({"model_type": "mixtral"})",
     .error = "model_type is not supported, must be \"llama\" for LlamaForCausalLM"},
    {.name = "AnUnsupportedActivationIsRefused",
     .patch = R"({"hidden_act": "quick_gelu"})",
     .error = "hidden_act is not supported, must be one of: silu"},
    {.name = "ASlidingWindowIsRefused",
     .patch = R"({"sliding_window": 128})",
     .error = "sliding_window is not supported"},
    {.name = "QuantizationIsRefused",
     .patch = R"({"quantization_config": {"bits": 4}})",
     .error = "quantization_config.quant_method is not supported, must be \"compressed-tensors\""},
    {.name = "ExpertsAreRefused",
     .patch = R"({"num_local_experts": 8})",
     .error = "num_local_experts is not supported"},
    {.name = "APartialRotaryFactorIsRefused",
     .patch = R"({"partial_rotary_factor": 0.5})",
     .error = "partial_rotary_factor is not supported"},
    {.name = "ALayerOfSlidingAttentionIsRefused",
     .patch = R"({"layer_types": ["full_attention", "sliding_attention"]})",
     .error = "layer_types"},
    {.name = "AnUnsupportedDtypeIsRefused",
     .patch = R"({"torch_dtype": "float8_e4m3fn"})",
     .error = "torch_dtype is not supported"},
    {.name = "ADtypeThatIsANumberIsRefused",
     .patch = R"({"dtype": 7})",
     .error = "dtype is not supported"},
    {.name = "AListForSluiceIsRefused",
     .patch = R"({"sluice": []})",
     .error = "sluice is not an object"},
    {.name = "AnUnknownSluiceKeyIsRefused",
     .patch = R"({"sluice": {"xas": {}}})",
     .error = "sluice.xas is not a known key"},
    {.name = "AnUnsupportedTokenizerIsRefused",
     .patch = R"({"sluice": {"tokenizer": "bpe"}})",
     .error = "sluice.tokenizer is not supported"},
    {.name = "AByteTokenizerWithTooFewTokensIsRefused",
     .patch = R"({"vocab_size": 255, "sluice": {"tokenizer": "byte"}})",
     .error = "sluice.tokenizer byte needs a vocab_size of at least 256, not 255"},
    {.name = "AnXsaLayerBeyondTheLastIsRefused",
     .patch = R"({"sluice": {"xsa": {"layers": [3]}}})",
     .error = "sluice.xsa.layers is 3, must be in [0, 2]"},
    {.name = "AnXsaLayerGivenTwiceIsRefused",
     .patch = R"({"sluice": {"xsa": {"layers": [1, 1]}}})",
     .error = "sluice.xsa.layers names 1 twice"},
    {.name = "ANumberForXsaLayersIsRefused",
     .patch = R"({"sluice": {"xsa": {"layers": 1}}})",
     .error = "sluice.xsa.layers is not a list"},
    {.name = "AnXsaEpsOfZeroIsRefused",
     .patch = R"({"sluice": {"xsa": {"eps": 0}}})",
     .error = "sluice.xsa.eps is 0"},
    {.name = "AnUnsupportedXsaFormIsRefused",
     .patch = R"({"sluice": {"xsa": {"form": "cubed"}}})",
     .error = "sluice.xsa.form is not supported"},
    {.name = "AnXsaGateThatIsABooleanIsRefused",
     .patch = R"({"sluice": {"xsa": {"gate": true}}})",
     .error = "sluice.xsa.gate is not supported"},
    {.name = "AnUnknownXsaKeyIsRefused",
     .patch = R"({"sluice": {"xsa": {"alpha": 1}}})",
     .error = "sluice.xsa.alpha is not a known key"},
    {.name = "PositionWiseWithoutPositionsIsRefused",
     .patch = R"({"sluice": {"position_wise": {"projections": {"v": [0]}}}})",
     .error = "sluice.position_wise.max_positions is missing"},
    {.name = "PositionWiseWithZeroPositionsIsRefused",
     .patch = R"({"sluice": {"position_wise": {"max_positions": 0}}})",
     .error = "sluice.position_wise.max_positions is 0"},
    {.name = "AnUnsupportedPositionWiseBiasIsRefused",
     .patch = R"({"sluice": {"position_wise": {"max_positions": 8, "bias": "l"}}})",
     .error = "sluice.position_wise.bias is not supported"},
    {.name = "AnUnknownPositionWiseProjectionIsRefused",
     .patch = R"({"sluice": {"position_wise": {"max_positions": 8, "projections": {"x": [0]}}}})",
     .error = "sluice.position_wise.projections.x is not a known key"},
    {.name = "ANegativePositionWiseLayerIsRefused",
     .patch = R"({"sluice": {"position_wise": {"max_positions": 8, "projections": {"q": [-1]}}}})",
     .error = "sluice.position_wise.projections.q is -1"},
};
SLUICE_TABLE(BadConfigTable, kBadConfigRows);

TEST(ConfigTest, RefusesTooManyEosTokens) {
  nlohmann::json config = nlohmann::json::parse(kBase);
  config["eos_token_id"] = std::vector<int>(256, 7);
  EXPECT_TRUE(ParseModelConfig(config.dump()).ok());
  config["eos_token_id"].push_back(7);
  EXPECT_EQ(ParseModelConfig(config.dump()).status(),
            absl::InvalidArgumentError("eos_token_id names 257 tokens; the limit is 256"));
}

struct BadConfigJsonRow {
  const char* name;
  std::string text;
  const char* error;
};
class BadConfigJsonTable : public TableTest<BadConfigJsonRow> {};

TEST_P(BadConfigJsonTable, TheErrorNamesTheFault) {
  const auto config = ParseModelConfig(row().text);
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(config.status().message()), HasSubstr(row().error));
}

const BadConfigJsonRow kBadConfigJsonRows[] = {
    {.name = "AnEmptyTextIsRefused", .text = "", .error = "bad JSON syntax"},
    {.name = "ABraceAloneIsRefused", .text = "{", .error = "bad JSON syntax"},
    {.name = "AListIsRefused", .text = "[]", .error = "is not a JSON object"},
    {.name = "HalfASurrogatePairIsRefused", .text = "\"\\ud800\"", .error = "bad JSON syntax"},
    {.name = "ANumberThatOverflowsIsRefused", .text = R"({"a": 1e999})", .error = "bad JSON"},
    {.name = "AKeyGivenTwiceIsRefused",
     .text = R"({"a": 1, "a": 1})",
     .error = "key \"a\" appears twice"},
    {.name = "AnInnerKeyGivenTwiceIsRefused",
     .text = R"({"x": {"b": 1, "b": 2}})",
     .error = "key \"b\" appears twice"},
    {.name = "NaNIsRefused", .text = R"({"hidden_size": NaN})", .error = "bad JSON syntax"},
    {.name = "InfinityIsRefused",
     .text = R"({"rms_norm_eps": -Infinity})",
     .error = "bad JSON syntax"},
    {.name = "BytesThatAreNoUtf8AreRefused",
     .text = "{\"model_type\": \"\xff\"}",
     .error = "bad JSON syntax"},
    {.name = "ANulByteIsRefused",
     .text = std::string("{\"a\": 1\0}", 9),
     .error = "bad JSON syntax"},
    {.name = "AHundredThousandBracketsAreRefused",
     .text = std::string(100000, '['),
     .error = "nested deeper than 16"},
    {.name = "ListsNestedDeeperThan16AreRefused",
     .text = R"({"a": [[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]})",
     .error = "nested deeper than 16"},
};
SLUICE_TABLE(BadConfigJsonTable, kBadConfigJsonRows);

}  // namespace
}  // namespace sluice
