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
        names.attention_gate, names.attention_gate_norm, names.q_norm, names.k_norm,
        names.final_norm, names.relative_bias, names.head, names.head_bias}) {
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
  std::vector<RopeUse> uses;
  for (const GraphOp& op : BuildGraph(config).ops) {
    if (const auto* rope = std::get_if<RopeStoreOp>(&op)) uses.push_back(rope->rope);
  }
  EXPECT_EQ(uses,
            (std::vector<RopeUse>{RopeUse::kMain, RopeUse::kNone, RopeUse::kMain, RopeUse::kNone}));
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

TEST(FamilyConfigsTest, LabelsAreIndependentIfTheProblemTypeStatesIt) {
  for (const std::string type : {"multi_label_classification", "single_label_classification"}) {
    const ModelConfig config =
        ParseFamily("Qwen3ForSequenceClassification", R"(, "problem_type": ")" + type + "\"");
    EXPECT_EQ(config.serving.classifier.multi_label, type.starts_with("multi"));
  }
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
    {.name = "OptWithPostNormIsRefused",
     .text = Config("OPTForCausalLM", R"(, "ffn_dim": 40, "do_layer_norm_before": false)"),
     .error = "do_layer_norm_before must be true"},
    {.name = "OptWithANarrowerEmbeddingIsRefused",
     .text = Config("OPTForCausalLM", R"(, "ffn_dim": 40, "word_embed_proj_dim": 12)"),
     .error = "word_embed_proj_dim is 12, must be hidden_size 24"},
    {.name = "AnotherActivationOfTheClassifierOfModernBertIsRefused",
     .text = Config("ModernBertForSequenceClassification", R"(, "classifier_activation": "silu")"),
     .error = "classifier_activation is not supported, must be \"gelu\" or \"relu\""},
    {.name = "NomicBertWithTheKeysOfGpt2IsRefused",
     .text = Config("NomicBertModel", R"(, "n_embd": 24)"),
     .error = "n_embd is not supported"},
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
     .error =
         "sluice.attention.disentangled.span needs as many key and value heads as query heads"},
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

}  // namespace
}  // namespace sluice
