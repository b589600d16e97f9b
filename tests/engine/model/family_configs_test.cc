// Tests the configs that the families of engine/model/families read and refuse.
// tests/goldens/families compares their results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/config.h"
#include "engine/model/families/family.h"
#include "engine/model/graph.h"
#include "engine/model/relative_bias.h"
#include "engine/model/rope.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/table.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kLlamaSizes[] = R"("vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 4,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 40,
  "max_position_embeddings": 64)";

std::string Config(const std::string& architecture, const std::string& more) {
  return R"({"architectures": [")" + architecture + R"("], )" + kLlamaSizes + more + "}";
}

ModelConfig ParseFamily(const std::string& architecture, const std::string& more = "") {
  auto config = ParseModelConfig(Config(architecture, more));
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : testing::TinyConfig(1);
}

std::vector<int64_t> WindowsOf(const ModelConfig& config) {
  std::vector<int64_t> windows;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    windows.push_back(config.window_of(layer));
  }
  return windows;
}

// Returns the rotary positions of each layer.
std::vector<RopeUse> RopeUsesOf(const ModelConfig& config) {
  std::vector<RopeUse> uses;
  for (const GraphOp& op : BuildGraph(config).ops) {
    if (const auto* rope = std::get_if<RopeStoreOp>(&op)) uses.push_back(rope->rope);
  }
  return uses;
}

TEST(FamilyConfigsTest, ArchitecturesAreNamedOnce) {
  std::set<std::string> names;
  for (const ModelFamily* const family : AllFamilies()) {
    for (const Architecture& architecture : family->architectures) {
      EXPECT_TRUE(names.insert(architecture.name).second) << architecture.name;
    }
  }
}

TEST(FamilyConfigsTest, RobertaPositionsBeginAfterThePadding) {
  const ModelConfig config = ParseFamily("RobertaModel", R"(, "pad_token_id": 3)");
  EXPECT_EQ(config.padding_token, 3);
  EXPECT_EQ(config.position_offset, 3);
  EXPECT_EQ(config.position_rows, 64);
  EXPECT_EQ(config.max_positions, 60);
}

TEST(FamilyConfigsTest, ModernBertIgnoresKeysWithoutEffect) {
  // mmBERT and Ettin publish this key.
  ParseFamily("ModernBertForMaskedLM", R"(, "position_embedding_type": "sans_pos")");
  // Only a head applies the activation.
  ParseFamily("ModernBertModel", R"(, "classifier_activation": "silu")");
  EXPECT_EQ(
      ParseFamily("ModernBertForSequenceClassification", R"(, "classifier_activation": "relu")")
          .serving.classifier.activation,
      PoolerActivation::kRelu);
}

TEST(FamilyConfigsTest, AnotherNameOfAKeyMustAgreeWithTheKey) {
  const std::string gpt2 = R"({"architectures": ["GPT2LMHeadModel"], "vocab_size": 50, "n_embd": 24,
    "n_layer": 2, "n_head": 3, "n_positions": 20, "hidden_size": )";
  EXPECT_TRUE(ParseModelConfig(gpt2 + "24}").ok());
  EXPECT_EQ(ParseModelConfig(gpt2 + "32}").status().message(),
            "hidden_size is another name of n_embd, which is absent or differs; use n_embd only");
}

TEST(FamilyConfigsTest, IsCausalIsRefusedWhereItCannotBeFollowed) {
  const auto error = [](const std::string& architecture, const std::string& more) {
    return std::string(ParseModelConfig(Config(architecture, more)).status().message());
  };
  EXPECT_THAT(error("BertModel", R"(, "is_causal": true)"),
              HasSubstr("is_causal is not supported, must be false for BertModel"));
  EXPECT_THAT(error("SluiceModel", R"(, "is_causal": false, "sluice": {})"),
              HasSubstr("set sluice.attention.causal"));
  EXPECT_FALSE(ParseFamily("Qwen3ForCausalLM", R"(, "is_causal": false)").causal);
  EXPECT_FALSE(ParseFamily("OPTModel", R"(, "is_causal": false, "ffn_dim": 40)").causal);
}

TEST(FamilyConfigsTest, EveryTensorOfTheExplicitArchitectureHasAName) {
  const TensorNames& names = kSluiceFamily.names;
  for (const char* const name :
       {names.embedding, names.positions, names.token_types, names.embedding_norm,
        names.attention_norm, names.post_attention_norm, names.mlp_norm, names.post_mlp_norm,
        names.embedding_projection, names.attention_gate, names.attention_gate_norm, names.q_norm,
        names.k_norm, names.final_norm, names.relative_bias, names.head, names.head_bias}) {
    EXPECT_STRNE(name, "");
  }
}

TEST(FamilyConfigsTest, EachFamilyHasItsKeyForTheSmallNumberInNorms) {
  EXPECT_EQ(ParseFamily("BertModel", R"(, "layer_norm_eps": 0.25)").norm.eps, 0.25f);
  EXPECT_EQ(ParseFamily("ModernBertModel", R"(, "norm_eps": 0.25)").norm.eps, 0.25f);
  EXPECT_EQ(ParseFamily("LlamaForCausalLM", R"(, "rms_norm_eps": 0.25)").norm.eps, 0.25f);
  const auto t5 = ParseModelConfig(R"({"architectures": ["T5EncoderModel"], "vocab_size": 50,
      "d_model": 24, "d_ff": 40, "num_layers": 2, "num_heads": 4, "d_kv": 6,
      "relative_attention_num_buckets": 8, "feed_forward_proj": "relu",
      "layer_norm_epsilon": 0.25})");
  ASSERT_TRUE(t5.ok()) << t5.status();
  EXPECT_EQ(t5->norm.eps, 0.25f);
}

TEST(FamilyConfigsTest, AMistralWindowAppliesToEveryLayer) {
  EXPECT_EQ(WindowsOf(ParseFamily("MistralForCausalLM", R"(, "sliding_window": 7)")),
            (std::vector<int64_t>{7, 7, 7, 7}));
  EXPECT_EQ(ParseFamily("MistralForCausalLM", R"(, "sliding_window": null)").window, 0);
  // The window hides nothing.
  EXPECT_EQ(ParseFamily("MistralForCausalLM", R"(, "sliding_window": 64)").window, 0);
}

// Returns the config with enough positions that a usual window hides some.
ModelConfig ParseLong(const std::string& architecture, const std::string& more = "") {
  std::string text = Config(architecture, more);
  text.replace(text.find("64"), 2, "8192");
  const auto config = ParseModelConfig(text);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : testing::TinyConfig(1);
}

TEST(FamilyConfigsTest, AMissingWindowUsesTheDefaultOfTransformers) {
  EXPECT_EQ(WindowsOf(ParseLong("MistralForCausalLM")),
            (std::vector<int64_t>{4096, 4096, 4096, 4096}));
  EXPECT_EQ(WindowsOf(ParseLong("Gemma2ForCausalLM")), (std::vector<int64_t>{4096, 0, 4096, 0}));
  EXPECT_EQ(ParseLong("MistralForCausalLM", R"(, "sliding_window": null)").window, 0);
  EXPECT_EQ(ParseLong("Phi3ForCausalLM").window, 0);
}

TEST(FamilyConfigsTest, LayerTypesSelectTheLayersWithAWindow) {
  EXPECT_EQ(WindowsOf(ParseFamily("Gemma2ForCausalLM", R"(, "sliding_window": 7)")),
            (std::vector<int64_t>{7, 0, 7, 0}));
  EXPECT_EQ(WindowsOf(ParseFamily("Gemma2ForCausalLM", R"(, "sliding_window": 7, "layer_types":
        ["full_attention", "full_attention", "sliding_attention", "full_attention"])")),
            (std::vector<int64_t>{0, 0, 7, 0}));
  EXPECT_EQ(WindowsOf(ParseFamily("Olmo3ForCausalLM", R"(, "sliding_window": 5)")),
            (std::vector<int64_t>{5, 5, 5, 0}));
  EXPECT_EQ(WindowsOf(ParseFamily("ModernBertModel", R"(, "local_attention": 8)")),
            (std::vector<int64_t>{0, 5, 5, 0}));
}

TEST(FamilyConfigsTest, LayersWithAWindowHaveABaseOfTheirOwn) {
  const ModelConfig published = ParseFamily("Gemma3ForCausalLM", R"(, "sliding_window": 7,
    "head_dim": 6,
    "rope_theta": 1e6, "rope_local_base_freq": 500, "rope_scaling": {"rope_type": "linear",
    "factor": 8})");
  const ModelConfig saved = ParseFamily("Gemma3ForCausalLM", R"(, "sliding_window": 7,
    "head_dim": 6,
    "rope_parameters": {"full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8},
                        "sliding_attention": {"rope_type": "default", "rope_theta": 500}})");
  for (const ModelConfig& config : {published, saved}) {
    EXPECT_EQ(config.rope.theta, 1e6);
    EXPECT_EQ(config.rope.divisors, (std::vector<double>{8, 8, 8}));
    ASSERT_TRUE(config.local_rope.has_value());
    EXPECT_EQ(config.local_rope->theta, 500);
    EXPECT_TRUE(config.local_rope->divisors.empty());
  }
}

TEST(FamilyConfigsTest, BothKindsOfLayersHaveTheFactorOfThePublishedPositions) {
  const std::string scaling = R"({"rope_type": "longrope", "original_max_position_embeddings": 16,
      "short_factor": [1, 2, 3], "long_factor": [4, 5, 6]})";
  const ModelConfig config = ParseFamily(
      "Gemma3ForCausalLM",
      absl::StrCat(
          R"(, "sliding_window": 7, "head_dim": 6, "rope_parameters": {"full_attention": )",
          scaling, R"(, "sliding_attention": )", scaling, "}"));
  EXPECT_EQ(config.max_positions, 16);
  ASSERT_TRUE(config.local_rope.has_value());
  EXPECT_NEAR(config.rope.attention_factor, 1.2247448713915890, 1e-12);  // sqrt(1 + ln 4 / ln 16)
  EXPECT_EQ(config.local_rope->attention_factor, config.rope.attention_factor);
}

TEST(FamilyConfigsTest, LayersOfOlmo3WithAWindowHaveNoScaling) {
  EXPECT_EQ(ParseFamily("Olmo3ForCausalLM").local_rope.value_or(RopeConfig()).theta, 500000);
  const ModelConfig config = ParseFamily("Olmo3ForCausalLM", R"(, "sliding_window": 5,
    "rope_theta": 2000, "rope_scaling": {"rope_type": "yarn", "factor": 8, "attention_factor": 1.25,
    "original_max_position_embeddings": 16})");
  EXPECT_EQ(config.rope.theta, 2000);
  EXPECT_EQ(config.rope.attention_factor, 1.25);
  ASSERT_TRUE(config.local_rope.has_value());
  EXPECT_EQ(config.local_rope->attention_factor, 1);
  const std::vector<double> usual = RopeFrequencies({.theta = 2000}, 6);
  EXPECT_EQ(RopeFrequencies(*config.local_rope, 6), usual);
  EXPECT_NE(RopeFrequencies(config.rope, 6), usual);
  EXPECT_THAT(RopeUsesOf(config),
              ElementsAre(RopeUse::kLocal, RopeUse::kLocal, RopeUse::kLocal, RopeUse::kMain));
}

TEST(FamilyConfigsTest, ScalingOfModernBertAppliesToLayersWithAWindow) {
  const ModelConfig linear = ParseFamily("ModernBertModel", R"(, "global_rope_theta": 1e6,
    "local_rope_theta": 500, "rope_scaling": {"rope_type": "linear", "factor": 8})");
  EXPECT_EQ(linear.rope.theta, 1e6);
  EXPECT_EQ(linear.rope.divisors, (std::vector<double>{8, 8, 8}));
  EXPECT_EQ(linear.local_rope->theta, 500);
  EXPECT_EQ(linear.local_rope->divisors, (std::vector<double>{8, 8, 8}));
  const ModelConfig yarn = ParseFamily("ModernBertModel", R"(, "rope_scaling": {"rope_type": "yarn",
    "factor": 4, "attention_factor": 1.25, "original_max_position_embeddings": 16,
    "rope_theta": 700})");
  EXPECT_EQ(yarn.rope.theta, 700);
  EXPECT_EQ(yarn.local_rope->theta, 700);
  EXPECT_EQ(yarn.local_rope->attention_factor, 1.25);
  ASSERT_TRUE(yarn.local_rope->yarn.has_value());
  EXPECT_EQ(yarn.local_rope->yarn->factor, 4);
}

TEST(FamilyConfigsTest, LayersWhoseWindowHidesNothingKeepTheirBase) {
  const ModelConfig gemma =
      ParseFamily("Gemma3ForCausalLM", R"(, "sliding_window": 64, "sliding_window_pattern": 2)");
  const ModelConfig bert = ParseFamily(
      "ModernBertModel", R"(, "local_attention": 126, "layer_types": ["sliding_attention",
      "full_attention", "sliding_attention", "full_attention"])");
  const ModelConfig own = ParseFamily("SluiceForCausalLM", R"(, "sluice": {
    "positions": {"local_theta": 500}, "attention": {"window": 64, "windowed": [0, 2]}})");
  for (const ModelConfig& config : {gemma, bert, own}) {
    EXPECT_THAT(WindowsOf(config), ElementsAre(0, 0, 0, 0)) << config.architecture;
    EXPECT_EQ(config.windowed_layers(), 0) << config.architecture;
    EXPECT_THAT(RopeUsesOf(config),
                ElementsAre(RopeUse::kLocal, RopeUse::kMain, RopeUse::kLocal, RopeUse::kMain))
        << config.architecture;
  }
}

// Files of transformers before version 5 have both keys of each value.
TEST(FamilyConfigsTest, GptNeoXMayNameItsRotatedPartAndItsBaseTwice) {
  const ModelConfig config = ParseFamily("GPTNeoXForCausalLM", R"(, "rotary_pct": 0.7,
    "partial_rotary_factor": 0.7, "rotary_emb_base": 500, "rope_theta": 500)");
  EXPECT_EQ(config.rope.dims, 4);
  EXPECT_EQ(config.rope.theta, 500);
}

TEST(FamilyConfigsTest, WindowsOfQwenBeginAtLayer28UnlessTheFileNamesTheLayer) {
  for (const char* const architecture : {"Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    const auto windows = [architecture](const char* more) {
      const auto config = ParseModelConfig(absl::StrCat(R"({"architectures": [")", architecture,
                                                        R"("], "vocab_size": 50, "hidden_size": 24,
          "num_hidden_layers": 30, "num_attention_heads": 4, "num_key_value_heads": 2,
          "intermediate_size": 40, "max_position_embeddings": 64, "sliding_window": 8,
          "use_sliding_window": true)",
                                                        more, "}"));
      EXPECT_TRUE(config.ok()) << config.status();
      return WindowsOf(*config);
    };
    std::vector<int64_t> expected(28, 0);
    expected.insert(expected.end(), {8, 8});
    EXPECT_EQ(windows(""), expected) << architecture;
    expected[27] = 8;
    EXPECT_EQ(windows(R"(, "max_window_layers": 27)"), expected) << architecture;
  }
}

// The class of Phi-3 has the length in training as a key of its own, whose default is 4096.
TEST(FamilyConfigsTest, TheTrainedLengthOfPhi3IsNextToTheScaling) {
  const auto parse = [](const char* trained) {
    const auto config = ParseModelConfig(absl::StrCat(
        R"({"architectures": ["Phi3ForCausalLM"], "vocab_size": 50, "hidden_size": 24,
        "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 40,
        "max_position_embeddings": 8192, "rope_scaling": {"type": "longrope",
        "original_max_position_embeddings": 32, "short_factor": [1, 2, 3],
        "long_factor": [4, 5, 6]})",
        trained, "}"));
    EXPECT_TRUE(config.ok()) << config.status();
    return *config;
  };
  const ModelConfig usual = parse("");
  EXPECT_EQ(usual.max_positions, 4096);
  EXPECT_NEAR(usual.rope.attention_factor, std::sqrt(13.0 / 12), 1e-12);  // 1 + ln 2 / ln 4096
  EXPECT_EQ(parse(R"(, "original_max_position_embeddings": 64)").max_positions, 64);
}

TEST(FamilyConfigsTest, LongRopeTakesTheShortFactorsUpToTheTrainedLength) {
  const std::string scaling = R"(, "original_max_position_embeddings": 16, "rope_scaling":
    {"type": "longrope", "short_factor": [1, 2, 3], "long_factor": [4, 5, 6]})";
  const ModelConfig usual = ParseFamily("Phi3ForCausalLM", scaling);
  EXPECT_EQ(usual.max_positions, 16);
  EXPECT_EQ(usual.rope.divisors, (std::vector<double>{1, 2, 3}));
  EXPECT_NEAR(usual.rope.attention_factor, 1.2247448713915890, 1e-12);  // sqrt(1 + ln 4 / ln 16)
  const ModelConfig all =
      ParseFamily("Phi3ForCausalLM", scaling + R"(, "sluice": {"long_context": true})");
  EXPECT_EQ(all.max_positions, 64);
  EXPECT_EQ(all.rope.divisors, (std::vector<double>{4, 5, 6}));
}

TEST(FamilyConfigsTest, SmolLm3LeavesSomeLayersWithoutPositions) {
  const ModelConfig config =
      ParseFamily("SmolLM3ForCausalLM", R"(, "no_rope_layers": [1, 0, 1, 0])");
  EXPECT_THAT(RopeUsesOf(config),
              ElementsAre(RopeUse::kMain, RopeUse::kNone, RopeUse::kMain, RopeUse::kNone));
}

TEST(FamilyConfigsTest, AClassifierOfACausalModelScoresTheLastState) {
  const ClassifierConfig& classifier =
      ParseFamily("Qwen3ForSequenceClassification", R"(, "num_labels": 5)").serving.classifier;
  EXPECT_EQ(classifier.labels, 5);
  EXPECT_EQ(classifier.pooling, Pooling::kLast);
  EXPECT_EQ(classifier.module, "score");
  EXPECT_FALSE(classifier.bias || classifier.pooler);
  EXPECT_EQ(ParseFamily("Qwen3ForCausalLM").serving.classifier.labels, 0);
}

TEST(FamilyConfigsTest, TheProblemTypeStatesIndependentLabelsAndRegression) {
  const auto classifier = [](const std::string& more) {
    return ParseFamily("Qwen3ForSequenceClassification", more).serving.classifier;
  };
  for (const std::string type :
       {"multi_label_classification", "single_label_classification", "regression"}) {
    const ClassifierConfig made = classifier(R"(, "problem_type": ")" + type + "\"");
    EXPECT_EQ(made.multi_label, type.starts_with("multi"));
    EXPECT_EQ(made.regression, type == "regression");
  }
  EXPECT_FALSE(classifier("").regression);
  EXPECT_FALSE(classifier(R"(, "problem_type": null)").regression);
}

// Returns the config of microsoft/deberta-v3-small, with small sizes.
std::string DebertaV3(const std::string& more = "") {
  return R"({"model_type": "deberta-v2", "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1, "hidden_size": 24, "initializer_range": 0.02,
    "intermediate_size": 40, "max_position_embeddings": 512, "relative_attention": true,
    "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": true,
    "pos_att_type": "p2c|c2p", "layer_norm_eps": 1e-7, "max_relative_positions": -1,
    "position_biased_input": false, "num_attention_heads": 4, "num_hidden_layers": 2,
    "type_vocab_size": 0, "vocab_size": 50)" +
         more + "}";
}

TEST(DebertaTest, APublishedConfigWithoutArchitecturesIsItsBaseModel) {
  const auto config = ParseModelConfig(DebertaV3());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->architecture, "DebertaV2Model");
  EXPECT_FALSE(config->has_lm_head);
  EXPECT_THAT(config->warnings, ElementsAre(HasSubstr("config.json names no architectures; the "
                                                      "model serves the states of "
                                                      "DebertaV2Model")));
  EXPECT_EQ(config->positions, PositionKind::kNone);
  EXPECT_EQ(config->disentangled.span, 256);
  EXPECT_EQ(config->disentangled.max_distance, 512);
  EXPECT_EQ(config->disentangled.terms, RelativeTermKind::kBoth);
  EXPECT_TRUE(config->disentangled.shared && config->disentangled.norm);
  EXPECT_FLOAT_EQ(config->score_scale, static_cast<float>(1 / std::sqrt(3.0 * 6)));
}

TEST(DebertaTest, TermsMayBeAListAndTheSpanFollowsTheDistancesWithoutBuckets) {
  const auto parse = [](const std::string& more) {
    const auto config = ParseModelConfig(
        R"({"architectures": ["DebertaV2ForMaskedLM"], "vocab_size": 50, "hidden_size": 24,
        "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40)" +
        more + "}");
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? *config : testing::TinyConfig(1);
  };
  const ModelConfig one = parse(
      R"(, "relative_attention": true, "pos_att_type": ["c2p"], "max_relative_positions": 9)");
  EXPECT_EQ(one.disentangled.span, 9);
  EXPECT_EQ(one.disentangled.max_distance, 0);
  EXPECT_EQ(one.disentangled.terms, RelativeTermKind::kQuery);
  EXPECT_FALSE(one.disentangled.shared || one.disentangled.norm);
  EXPECT_EQ(one.positions, PositionKind::kLearned);
  const ModelConfig other = parse(R"(, "relative_attention": true, "pos_att_type": "P2C")");
  EXPECT_EQ(other.disentangled.span, 512);
  EXPECT_EQ(other.disentangled.terms, RelativeTermKind::kKey);
  // Without relative attention, the terms only lower the scale.
  const ModelConfig none = parse(R"(, "pos_att_type": ["c2p", "p2c"])");
  EXPECT_EQ(none.disentangled.span, 0);
  EXPECT_FLOAT_EQ(none.score_scale, static_cast<float>(1 / std::sqrt(3.0 * 6)));
}

// The rows of transformers, with the borders of their buckets (make_relative_rows.py).
TEST(RelativeRowsTest, EveryDistanceHasItsRowInTransformers) {
  const nlohmann::json golden =
      nlohmann::json::parse(ReadTestFile(SLUICE_SOURCE_DIR "/tests/goldens/relative_rows.json"));
  const int64_t farthest = golden["farthest"];
  ASSERT_GE(golden["tables"].size(), 7u);
  for (const nlohmann::json& table : golden["tables"]) {
    const int64_t span = table["span"], most = table["max_distance"];
    const std::vector<int64_t> borders = table["borders"];
    int64_t row = table["first"];
    const std::vector<int32_t> rows = RelativeRows(span, most, farthest);
    for (int64_t d = -farthest; d < farthest; ++d) {
      if (std::ranges::binary_search(borders, d)) --row;
      ASSERT_EQ(rows[farthest + d], row) << "distance " << d << " of span " << span;
    }
  }
}

TEST(RelativeRowsTest, WithoutAMaximumDistanceEachDistanceHasItsRowWithinTheSpan) {
  EXPECT_EQ(RelativeRows(3, 0, 5), (std::vector<int32_t>{5, 5, 5, 5, 4, 3, 2, 1, 0, 0}));
}

TEST(RelativeBiasTest, DistancesShareBucketsFromTheLongestOn) {
  // Each direction has 4 of the 8 buckets: distances 0 and 1, distances up to 20, and all others.
  EXPECT_EQ(RelativeBucket(0, 8, 20), 0);
  EXPECT_EQ(RelativeBucket(-1, 8, 20), 1);
  EXPECT_EQ(RelativeBucket(1, 8, 20), 5);
  EXPECT_EQ(RelativeBucket(-2, 8, 20), 2);
  EXPECT_EQ(RelativeBucket(-20, 8, 20), 3);
  EXPECT_EQ(RelativeBucket(1000, 8, 20), 7);
}

// Returns the published config of nomic-embed-text-v1.5, with small sizes.
std::string PublishedNomic(const std::string& more) {
  return R"({"architectures": ["NomicBertModel"], "model_type": "nomic_bert", "vocab_size": 50,
    "n_embd": 24, "n_head": 4, "n_layer": 2, "n_inner": 40, "n_positions": 64,
    "mlp_fc1_bias": false, "mlp_fc2_bias": false, "qkv_proj_bias": false,
    "rotary_emb_base": 1000)" +
         more + "}";
}

TEST(FamilyConfigsTest, ExpertsFollowTheKeysOfEachFamily) {
  using kernels::RouteSoftmax;
  const ModelConfig mixtral = ParseFamily("MixtralForCausalLM");
  EXPECT_EQ(mixtral.experts.count, 8);
  EXPECT_EQ(mixtral.experts.chosen, 2);
  EXPECT_EQ(mixtral.experts.width, mixtral.intermediate_size);
  EXPECT_EQ(mixtral.experts.softmax, RouteSoftmax::kOfChosen);
  EXPECT_EQ(mixtral.experts.layers, (std::vector<bool>{true, true, true, true}));
  // Published files and files of transformers 5 use different names.
  for (const char* const key : {"num_experts", "num_local_experts"}) {
    const ModelConfig qwen = ParseFamily(
        "Qwen3MoeForCausalLM", absl::StrCat(R"(, "num_experts_per_tok": 3, "norm_topk_prob": true,
            "moe_intermediate_size": 7, ")",
                                            key, R"(": 5)"));
    EXPECT_EQ(qwen.experts.count, 5);
    EXPECT_EQ(qwen.experts.chosen, 3);
    EXPECT_EQ(qwen.experts.width, 7);
    EXPECT_EQ(qwen.experts.softmax, RouteSoftmax::kOfChosen);
  }
  const ModelConfig some = ParseFamily("Qwen3MoeForCausalLM",
                                       R"(, "decoder_sparse_step": 2, "mlp_only_layers": [3, 0])");
  EXPECT_EQ(some.experts.layers, (std::vector<bool>{false, true, false, false}));
  EXPECT_EQ(some.experts.count, 128);
  EXPECT_EQ(some.experts.softmax, RouteSoftmax::kOfAll);
  const ModelConfig none =
      ParseFamily("Qwen3MoeForCausalLM", R"(, "mlp_only_layers": [0, 1, 2, 3])");
  EXPECT_EQ(none.experts.count, 0);
  EXPECT_EQ(ParseFamily("OlmoeForCausalLM").experts.count, 64);
  EXPECT_EQ(ParseFamily("GraniteMoeForCausalLM").experts.softmax, RouteSoftmax::kOfChosen);
  const auto nomic = ParseModelConfig(PublishedNomic(
      R"(, "activation_function": "gelu", "num_experts": 8, "moe_top_k": 2,
         "moe_every_n_layers": 2)"));
  ASSERT_TRUE(nomic.ok()) << nomic.status();
  EXPECT_TRUE(nomic->experts.bias);
  EXPECT_FALSE(nomic->gated_mlp);
  EXPECT_FALSE(nomic->experts.in(0));
  EXPECT_TRUE(nomic->experts.in(1));
}

TEST(FamilyConfigsTest, NomicBertReadsItsPublishedKeys) {
  const auto config = ParseModelConfig(PublishedNomic(R"(, "attn_pdrop": 0.0)"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->warnings, ElementsAre());
  EXPECT_EQ(config->hidden_size, 24);
  EXPECT_EQ(config->max_positions, 64);
  EXPECT_EQ(config->rope.theta, 1000);
  EXPECT_EQ(config->activation, Activation::kSilu);
  EXPECT_TRUE(config->gated_mlp && !config->mlp_bias && !config->qkv_bias);
}

TEST(FamilyConfigsTest, NtkScalingDividesEachFrequencyByAPowerOfTheFactor) {
  const ModelConfig config = ParseFamily(
      "NewModel", R"(, "rope_theta": 500000, "rope_scaling": {"type": "ntk", "factor": 8})");
  ASSERT_EQ(config.rope.divisors.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(config.rope.divisors[i], std::pow(8.0, 2.0 * (i + 1) / 6), 1e-12);
  }
}

TEST(FamilyConfigsTest, FactorsOfGraniteMoveToTheEmbedding) {
  const ModelConfig config = ParseFamily("GraniteForCausalLM", R"(, "embedding_multiplier": 12,
    "residual_multiplier": 0.25, "logits_scaling": 8, "attention_multiplier": 0.5,
    "rms_norm_eps": 1e-5)");
  EXPECT_EQ(config.embedding_scale, 48);
  EXPECT_FLOAT_EQ(config.norm.eps, 16e-5f);
  EXPECT_EQ(config.score_scale, 0.5f);
  EXPECT_EQ(config.logit_scale, 0.125f);
}

TEST(FamilyConfigsTest, AnswersAreScoresOfTokensWithTheirOwnNames) {
  const ClassifierConfig classifier = ParseFamily("BertForQuestionAnswering").serving.classifier;
  EXPECT_TRUE(classifier.of_tokens);
  EXPECT_EQ(classifier.labels, 2);
  EXPECT_EQ(classifier.module, "qa_outputs");
  EXPECT_THAT(classifier.names, ElementsAre("start", "end"));
  EXPECT_EQ(ParseFamily("ModernBertForQuestionAnswering").serving.classifier.module, "classifier");
}

TEST(FamilyConfigsTest, ADenseLayerOfTheModelMakesItsEmbedding) {
  const ModelConfig config = ParseFamily("Qwen3BidirectionalModel", R"(, "num_labels": 7)");
  EXPECT_FALSE(config.causal);
  EXPECT_EQ(config.embedding_size(), 7);
  EXPECT_EQ(ParseFamily("Qwen3BidirectionalModel").embedding_size(), 24);
  // As published for voyage-4-nano.
  EXPECT_EQ(ParseFamily("Qwen3ForCausalLM", R"(, "num_labels": 7, "auto_map":
    {"AutoModel": "modeling_qwen3_bidirectional.Qwen3BidirectionalModel"})")
                .architecture,
            "Qwen3BidirectionalModel");
}

TEST(FamilyConfigsTest, AModelThatReadsImagesServesItsTextConfig) {
  // As published for gemma-3-4b-it: the other sizes are the class's.
  const auto config = ParseModelConfig(R"({"architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3", "boi_token_index": 255999, "eos_token_id": [1, 106],
    "image_token_index": 262144, "mm_tokens_per_image": 256, "torch_dtype": "bfloat16",
    "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
    "model_type": "gemma3_text", "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0,
    "rope_type": "linear"}, "sliding_window": 1024}, "vision_config": {"hidden_size": 1152}})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->architecture, "Gemma3ForConditionalGeneration");
  EXPECT_EQ(config->vocab_size, 262208);
  EXPECT_EQ(config->heads, 8);
  EXPECT_EQ(config->kv_heads, 4);
  EXPECT_EQ(config->head_dim, 256);
  EXPECT_EQ(config->rope.theta, 1e6);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(1, 106));
  EXPECT_TRUE(config->stored_in_bf16);
  EXPECT_THAT(config->warnings, ElementsAre(HasSubstr("the model serves texts only")));
}

TEST(FamilyConfigsTest, Ministral3EndsAtItsLengthInTraining) {
  const ModelConfig config = ParseFamily("Ministral3ForCausalLM", R"(, "head_dim": 6,
    "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000, "factor": 4,
    "original_max_position_embeddings": 16, "llama_4_scaling_beta": 0.1})");
  EXPECT_EQ(config.max_positions, 16);
}

TEST(RelativeBiasTest, AlibiHasTheSlopesOfItsPaper) {
  const auto slope = [](int64_t heads, int64_t head) {
    return -AlibiByDistance(heads, 4)[head * (8 + kBiasSlack) + 4 + 1];
  };
  for (int64_t h = 0; h < 8; ++h) {
    EXPECT_FLOAT_EQ(slope(8, h), static_cast<float>(std::exp2(-1.0 - static_cast<double>(h))));
  }
  // Of 12 heads, 8 are as above, and 4 have every other slope of 16 heads.
  EXPECT_FLOAT_EQ(slope(12, 7), static_cast<float>(std::exp2(-8)));
  EXPECT_FLOAT_EQ(slope(12, 8), static_cast<float>(std::exp2(-0.5)));
  EXPECT_FLOAT_EQ(slope(12, 11), static_cast<float>(std::exp2(-3.5)));
  const std::vector<float> bias = AlibiByDistance(1, 3);
  EXPECT_EQ(bias[3], 0);
  EXPECT_EQ(bias[0], bias[3 + 2] * 1.5f);  // the same in both directions
}

struct BadFamilyRow {
  const char* name;
  std::string text;
  const char* error;
};
class RefusedFamilyTable : public TableTest<BadFamilyRow> {};

TEST_P(RefusedFamilyTable, TheErrorNamesTheKey) {
  const auto config = ParseModelConfig(row().text);
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(config.status().message()), HasSubstr(row().error));
}

const BadFamilyRow kRefusedFamilyRows[] = {
    {.name = "AModelTypeOfAnotherFamilyIsRefused",
     .text = Config("RobertaModel", R"(, "model_type": "xlm-roberta")"),
     .error = "model_type is not supported, must be \"roberta\" for RobertaModel"},
    {.name = "PositionsThatPaddingUsesUpAreRefused",
     .text = R"({"architectures": ["RobertaModel"], "vocab_size": 50, "hidden_size": 24,
       "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 40,
       "max_position_embeddings": 20, "pad_token_id": 19})",
     .error = "max_position_embeddings is 20, must be above pad_token_id + 1"},
    {.name = "AnUnknownTypeOfLayerIsRefused",
     .text = Config("Gemma2ForCausalLM", R"(, "sliding_window": 7, "layer_types":
       ["full_attention", "chunked_attention", "full_attention", "full_attention"])"),
     .error = "layer_types has a type other than full_attention and sliding_attention"},
    {.name = "TooFewTypesOfLayersAreRefused",
     .text = Config("Qwen3ForCausalLM", R"(, "use_sliding_window": true, "sliding_window": 7,
       "layer_types": ["full_attention"])"),
     .error = "layer_types must be a list with a type for each layer"},
    {.name = "AWindowOfLlamaIsRefused",
     .text = Config("LlamaForCausalLM", R"(, "sliding_window": 7)"),
     .error = "sliding_window is not supported"},
    {.name = "FactorsOfAnotherNumberOfFeaturesAreRefused",
     .text = Config("Phi3ForCausalLM", R"(, "rope_scaling": {"type": "longrope",
       "short_factor": [1, 2], "long_factor": [1, 2]})"),
     .error = "rope_scaling.short_factor must be a list of 3 positive numbers"},
    {.name = "OneSetOfRopeParametersOfOlmo3IsRefused",
     .text = Config("Olmo3ForCausalLM",
                    R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 10000})"),
     .error = "rope_parameters must have the parameters of sliding_attention"},
    {.name = "YarnOfModernBertWithASmallLocalBaseIsRefused",
     .text = Config("ModernBertModel", R"(, "local_rope_theta": 1, "rope_scaling":
       {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16})"),
     .error = "local_rope_theta must be above 1 for yarn"},
    {.name = "AnotherRotatedPartOfGptNeoXUnderItsSecondKeyIsRefused",
     .text = Config("GPTNeoXForCausalLM", R"(, "rotary_pct": 0.7, "partial_rotary_factor": 0.4)"),
     .error = "partial_rotary_factor is 0.4, which differs from rotary_pct (0.25 if absent); set "
              "both to the same value"},
    {.name = "AnotherBaseOfGptNeoXUnderItsSecondKeyIsRefused",
     .text = Config("GPTNeoXForCausalLM", R"(, "rotary_pct": 0.7, "rope_theta": 500)"),
     .error = "rope_theta is 500, which differs from rotary_emb_base (10000 if absent)"},
    {.name = "OptWithPostNormIsRefused",
     .text = Config("OPTForCausalLM", R"(, "ffn_dim": 40, "do_layer_norm_before": false)"),
     .error = "do_layer_norm_before must be true"},
    {.name = "OptWithANarrowerEmbeddingIsRefused",
     .text = Config("OPTForCausalLM", R"(, "ffn_dim": 40, "word_embed_proj_dim": 12)"),
     .error = "word_embed_proj_dim is 12, must be hidden_size 24"},
    {.name = "AnotherActivationOfTheClassifierOfModernBertIsRefused",
     .text = Config("ModernBertForSequenceClassification", R"(, "classifier_activation": "silu")"),
     .error = "classifier_activation is not supported, must be \"gelu\" or \"relu\""},
    {.name = "AnotherMlpOfNomicBertIsRefused",
     .text = PublishedNomic(R"(, "activation_function": "glu")"),
     .error = "activation_function is not supported, must be \"swiglu\", \"geglu\" or \"gelu\""},
    {.name = "GatedExpertsOfNomicBertAreRefused",
     .text = PublishedNomic(R"(, "num_experts": 8, "moe_top_k": 2, "moe_every_n_layers": 2)"),
     .error = "activation_function must be \"gelu\" in a model with experts"},
    {.name = "SharedExpertsOfNomicBertAreRefused",
     .text = PublishedNomic(R"(, "num_shared_experts": 1)"),
     .error = "num_shared_experts is not supported, must be 0"},
    {.name = "ExpertsThatChooseRowsAreRefused",
     .text = PublishedNomic(R"(, "expert_choice_router": true)"),
     .error = "expert_choice_router is not supported, must be false"},
    {.name = "FewerExpertsThanAreChosenByDefaultAreRefused",
     .text = Config("OlmoeForCausalLM", R"(, "num_experts": 7)"),
     .error = "num_experts_per_tok is 8 by default, must be in [1, 7]"},
    {.name = "MoreChosenExpertsThanThereAreIsRefused",
     .text = Config("MixtralForCausalLM", R"(, "num_local_experts": 4, "num_experts_per_tok": 5)"),
     .error = "num_experts_per_tok is 5, must be in [1, 4]"},
    {.name = "TooManyExpertsInAllLayersAreRefused",
     .text = R"({"architectures": ["OlmoeForCausalLM"], "vocab_size": 50, "hidden_size": 24,
       "num_hidden_layers": 100, "num_attention_heads": 4, "intermediate_size": 40,
       "max_position_embeddings": 64, "num_experts": 4096})",
     .error = "num_experts is 4096; with 100 layers, the model must have at most 65536 experts"},
    {.name = "TwoNumbersOfExpertsAreRefused",
     .text = Config("Qwen3MoeForCausalLM", R"(, "num_experts": 4, "num_local_experts": 5)"),
     .error = "num_experts is another name of num_local_experts"},
    {.name = "ExpertsOfLlamaAreRefused",
     .text = Config("LlamaForCausalLM", R"(, "num_local_experts": 4)"),
     .error = "num_local_experts is not supported"},
    {.name = "AClippedProjectionOfOlmoeIsRefused",
     .text = Config("OlmoeForCausalLM", R"(, "clip_qkv": 8)"),
     .error = "clip_qkv is not supported"},
    {.name = "APositionWiseMlpOfALayerWithExpertsIsRefused",
     .text = Config("SluiceForCausalLM", R"(, "sluice": {"experts": {"count": 4, "chosen": 2},
       "position_wise": {"max_positions": 4, "projections": {"up": [0]}}})"),
     .error = "sluice.position_wise names a projection of the MLP of layer 0, which has experts"},
    {.name = "ExpertsWithoutANumberAreRefused",
     .text = Config("SluiceForCausalLM", R"(, "sluice": {"experts": {"count": 4}})"),
     .error = "sluice.experts.chosen is missing"},
    {.name = "NormsBeforeTheBranchesOfNomicBertAreRefused",
     .text = PublishedNomic(R"(, "prenorm": true)"),
     .error = "prenorm is not supported, must be false"},
    {.name = "APositionScalingOfNomicBertIsRefused",
     .text = PublishedNomic(R"(, "rotary_scaling_factor": 2)"),
     .error = "rotary_scaling_factor is not supported, must be null"},
    {.name = "SeparateProjectionsOfGteAreRefused",
     .text = Config("NewModel", R"(, "pack_qkv": false)"),
     .error = "pack_qkv is not supported, must be true"},
    {.name = "LearnedPositionsOfGteAreRefused",
     .text = Config("NewModel", R"(, "position_embedding_type": "absolute")"),
     .error = "position_embedding_type"},
    {.name = "NtkScalingOfAnotherFamilyIsRefused",
     .text = Config("LlamaForCausalLM", R"(, "rope_scaling": {"type": "ntk", "factor": 2})"),
     .error = "rope_scaling.type"},
    {.name = "DynamicScalingOfAnotherFamilyIsRefused",
     .text = Config("LlamaForCausalLM", R"(, "rope_scaling": {"type": "dynamic", "alpha": 2})"),
     .error = "rope_scaling.type"},
    {.name = "DynamicScalingOfHunyuanByLengthIsRefused",
     .text = Config("HunYuanDenseV1ForCausalLM",
                    R"(, "rope_scaling": {"type": "dynamic", "factor": 2})"),
     .error = "rope_scaling.alpha is missing"},
    {.name = "HunyuanWithoutNormsOfQueriesIsRefused",
     .text = Config("HunYuanDenseV1ForCausalLM", R"(, "use_qk_norm": false)"),
     .error = "use_qk_norm is not supported, must be true"},
    {.name = "AScaleOfRotatedHeadsBeforeTheirNormsIsRefused",
     .text = Config("HunYuanDenseV1ForCausalLM", R"(, "rope_scaling": {"type": "yarn",
       "factor": 4, "original_max_position_embeddings": 16})"),
     .error = "rope_scaling scales the norms of queries and keys"},
    {.name = "RotatedNeighboursInAPartOfAHeadAreRefused",
     .text = Config("SluiceForCausalLM",
                    R"(, "sluice": {"positions": {"dims": 2, "neighbours": true}})"),
     .error = "sluice.positions.neighbours needs dims 6, the head_dim"},
    {.name = "RotatedNeighboursOfAProjectionByPositionAreRefused",
     .text = Config("SluiceForCausalLM", R"(, "sluice": {"positions": {"neighbours": true},
       "position_wise": {"projections": {"k": [0]}, "max_positions": 8}})"),
     .error = "sluice.position_wise names q or k; this needs positions.neighbours false"},
    {.name = "RotatedNeighboursWithRotatedWeightsOfNormsAreRefused",
     .text = Config("SluiceForCausalLM", R"(, "sluice": {"positions": {"neighbours": true},
       "attention": {"qk_norm": true, "qk_norm_weight": "rotated"}})"),
     .error = "sluice.attention has qk_norm_weight \"rotated\""},
    {.name = "AThirdScoreOfAnswersIsRefused",
     .text = Config("BertForQuestionAnswering", R"(, "num_labels": 3)"),
     .error = "num_labels is 3, must be 2 for BertForQuestionAnswering"},
    {.name = "AnotherPoolingOfABidirectionalLlamaIsRefused",
     .text = Config("LlamaBidirectionalModel", R"(, "pooling": "last")"),
     .error = "pooling is not supported, must be \"avg\""},
    {.name = "TheTemperatureOfABidirectionalClassifierIsRefused",
     .text = Config("LlamaBidirectionalForSequenceClassification", R"(, "temperature": 2)"),
     .error = "temperature is not supported, must be 1"},
    {.name = "TheMeanOfScoresOfEuroBertIsRefused",
     .text = Config("EuroBertForSequenceClassification", R"(, "classifier_pooling": "late")"),
     .error = "classifier_pooling late is not supported, must be \"bos\" or \"mean\""},
    {.name = "NormsOfQueriesOfPhiAreRefused",
     .text = Config("PhiForCausalLM", R"(, "qk_layernorm": true)"),
     .error = "qk_layernorm is not supported, must be false"},
    {.name = "NormsOfQueriesOfStableLmAreRefused",
     .text = Config("StableLmForCausalLM", R"(, "qk_layernorm": true)"),
     .error = "qk_layernorm is not supported, must be false"},
    {.name = "SeveralLayersInAGroupOfAlbertAreRefused",
     .text = Config("AlbertModel", R"(, "inner_group_num": 2)"),
     .error = "inner_group_num is not supported, must be 1"},
    {.name = "LearnedPositionsOfJinaBertAreRefused",
     .text = Config("JinaBertModel", R"(, "feed_forward_type": "geglu")"),
     .error = "position_embedding_type is not supported, must be \"alibi\""},
    {.name = "APlainMlpOfJinaBertIsRefused",
     .text = Config("JinaBertModel", R"(, "position_embedding_type": "alibi")"),
     .error = "feed_forward_type is not supported, must be \"geglu\" or \"reglu\""},
    {.name = "LearnedPositionsOfJinaV3AreRefused",
     .text = Config("XLMRobertaLoRA", R"(, "model_type": "xlm-roberta")"),
     .error = "position_embedding_type is not supported, must be \"rotary\""},
    {.name = "ATaskOfJinaV3NeedsANameThatRequestsCanGive",
     .text = Config("XLMRobertaLoRA", R"(, "position_embedding_type": "rotary",
       "load_trained_adapters": true, "lora_adaptations": ["a:b"])"),
     .error = "lora_adaptations must be a list of up to 64 names"},
    {.name = "TasksOfJinaV3HaveDifferentNames",
     .text = Config("XLMRobertaLoRA", R"(, "position_embedding_type": "rotary",
       "load_trained_adapters": true, "lora_adaptations": ["a", "b", "a"])"),
     .error = "lora_adaptations has a name twice"},
    {.name = "AModelThatReadsImagesNeedsItsTextConfig",
     .text = R"({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3"})",
     .error = "text_config is missing"},
    {.name = "AnotherTextConfigOfAModelThatReadsImagesIsRefused",
     .text = R"({"architectures": ["Mistral3ForConditionalGeneration"],
       "text_config": {"model_type": "llama"}})",
     .error = "text_config.model_type is not supported for Mistral3ForConditionalGeneration, must "
              "be one of: mistral ministral3"},
    {.name = "AlibiOfCausalAttentionIsRefused",
     .text = Config("SluiceForCausalLM", R"(, "sluice": {"attention": {"alibi": true}})"),
     .error = "sluice.attention.alibi needs causal false and no relative_bias"},
    {.name = "ATiedHeadOfANarrowEmbeddingIsRefused",
     .text = Config("SluiceForCausalLM", R"(, "tie_word_embeddings": true, "sluice":
       {"embedding_width": 12})"),
     .error = "sluice.embedding_width needs tie_word_embeddings false"},
    {.name = "VectorsInPlaceOfANarrowEmbeddingAreRefused",
     .text = Config("SluiceForCausalLM", R"(, "sluice": {"embedding_width": 12, "input":
       {"kind": "embeds"}})"),
     .error = "sluice.input.kind must be \"ids\""},
    {.name = "AScaleOfLogitsWithoutTheLastNormIsRefused",
     .text = Config("SluiceForCausalLM", R"(, "sluice": {"logit_scale": 2, "norm":
       {"final": false}})"),
     .error = "sluice.logit_scale needs norm.final"},
    {.name = "AWindowWithoutItsLayersIsRefused",
     .text = Config("SluiceForCausalLM", R"(, "sluice": {"attention": {"window": 7}})"),
     .error = "sluice.attention.windowed and attention.window must be set together"},
    {.name = "ARelativeBiasOfCausalAttentionIsRefused",
     .text = Config("SluiceForCausalLM",
                    R"(, "sluice": {"attention": {"relative_bias": {"buckets": 8}}})"),
     .error = "sluice.attention.relative_bias needs causal false"},
    {.name = "DisentangledAttentionOfACausalModelIsRefused",
     .text =
         Config("SluiceForCausalLM", R"(, "sluice": {"attention": {"disentangled": {"span": 8}}})"),
     .error = "sluice.attention.disentangled needs causal false"},
    {.name = "DisentangledAttentionBySiluIsRefused",
     .text = Config("SluiceForCausalLM", R"(, "sluice": {"attention": {"causal": false,
       "weights": "silu", "disentangled": {"span": 8}}})"),
     .error = "sluice.attention.disentangled needs weights \"softmax\""},
    {.name = "DisentangledAttentionOfGroupedQueriesIsRefused",
     .text = Config("SluiceForCausalLM", R"(, "sluice": {"attention": {"causal": false,
       "disentangled": {"span": 8}}})"),
     .error = "sluice.attention.disentangled.span needs one KV head for each query head; there are "
              "2 and 4"},
    {.name = "AMaximumDistanceWithinTheFirstHalfOfTheSpanIsRefused",
     .text = R"({"architectures": ["SluiceForCausalLM"], "vocab_size": 50, "hidden_size": 24,
       "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 40,
       "max_position_embeddings": 64, "sluice": {"attention": {"causal": false,
       "disentangled": {"span": 8, "max_distance": 5}}}})",
     .error = "sluice.attention.disentangled.max_distance is 5, must be at least 6 for span 8"},
    {.name = "TheConvolutionOfDebertaIsRefused",
     .text = DebertaV3(R"(, "conv_kernel_size": 3)"),
     .error = "conv_kernel_size is not supported, must be 0"},
    {.name = "ANarrowEmbeddingOfDebertaIsRefused",
     .text = DebertaV3(R"(, "embedding_size": 12)"),
     .error = "embedding_size is 12, must be hidden_size 24"},
    {.name = "AnUnknownTermOfDebertaIsRefused",
     .text = R"({"architectures": ["DebertaV2Model"], "vocab_size": 50, "hidden_size": 24,
       "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40,
       "pos_att_type": ["c2p", "p2p"]})",
     .error = "pos_att_type names \"p2p\", which is not supported"},
    {.name = "AWiderHeadOfDebertaIsRefused",
     .text = DebertaV3(R"(, "attention_head_size": 8)"),
     .error = "attention_head_size times num_attention_heads is 32, must be hidden_size 24"},
    {.name = "TheNewHeadOfDebertaIsRefused",
     .text = DebertaV3(R"(, "legacy": false, "architectures": ["DebertaV2ForMaskedLM"])"),
     .error = "legacy is not supported, must be true for DebertaV2ForMaskedLM"},
    {.name = "AnotherActivationOfThePoolerOfDebertaIsRefused",
     .text = DebertaV3(R"(, "pooler_hidden_act": "silu",
       "architectures": ["DebertaV2ForSequenceClassification"])"),
     .error = "pooler_hidden_act is not supported, must be \"gelu\" or \"relu\""},
    {.name = "AUnitOffsetWithoutAWeightIsRefused",
     .text = Config("SluiceForCausalLM",
                    R"(, "sluice": {"norm": {"unit_offset": true, "weight": false}})"),
     .error = "sluice.norm.unit_offset needs a weight"},
    {.name = "AParallelBlockWithoutItsFirstNormIsRefused",
     .text = Config("SluiceForCausalLM",
                    R"(, "sluice": {"block": "parallel", "norm": {"first": false}})"),
     .error = "sluice.block parallel needs norm.first"},
};
SLUICE_TABLE(RefusedFamilyTable, kRefusedFamilyRows);

// auto_map names the code of the hub, and "architectures" a class of transformers.
TEST(FamilyConfigsTest, ReadsTheTasksOfJinaV3AndTheirPrompts) {
  const std::string tasks = R"(, "model_type": "xlm-roberta", "position_embedding_type": "rotary",
      "rotary_emb_base": 500, "auto_map": {"AutoModel": "hub/code--modeling_lora.XLMRobertaLoRA"},
      "lora_adaptations": ["one", "two"], "lora_rank": 4, "lora_alpha": 6,
      "task_instructions": {"one": "Represent: "}, "load_trained_adapters": )";
  const ModelConfig config = ParseFamily("XLMRobertaModel", tasks + "true");
  EXPECT_EQ(config.architecture, "XLMRobertaLoRA");
  EXPECT_THAT(config.task_adapters.names, ElementsAre("one", "two"));
  EXPECT_EQ(config.task_adapters.rank, 4);
  EXPECT_EQ(config.task_adapters.scale, 1.5);
  EXPECT_EQ(config.rope.theta, 500);
  ASSERT_EQ(config.serving.prompts.size(), 2u);
  EXPECT_EQ(config.serving.FindPrompt("one")->text, "Represent: ");
  EXPECT_EQ(config.serving.FindPrompt("two")->text, "");
  EXPECT_EQ(config.serving.default_prompt, "");
  EXPECT_THAT(ParseFamily("XLMRobertaModel", tasks + "false").task_adapters.names, ElementsAre());
  EXPECT_EQ(ParseFamily("XLMRobertaModel").architecture, "XLMRobertaModel");
}

}  // namespace
}  // namespace sluice
