// Tests how the config.json of each family is read, and the names of its tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "engine/model/config.h"
#include "engine/model/families/family.h"
#include "engine/model/graph.h"
#include "engine/model/tensor_names.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

ModelConfig Parse(const std::string& text) {
  auto config = ParseModelConfig(text);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : testing::TinyConfig(1);
}

constexpr char kGpt2[] = R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
  "vocab_size": 50, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 20)";
constexpr char kBert[] = R"({"architectures": ["BertModel"], "model_type": "bert",
  "vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3,
  "intermediate_size": 40, "max_position_embeddings": 20)";
constexpr char kSizes[] = R"("vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 4,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 40,
  "max_position_embeddings": 20)";

std::string Qwen2(const std::string& more) {
  return std::string(R"({"architectures": ["Qwen2ForCausalLM"], )") + kSizes + more + "}";
}
std::string Sluice(const std::string& object) {
  return std::string(R"({"architectures": ["SluiceForCausalLM"], )") + kSizes + R"(, "sluice": )" +
         object + "}";
}

TEST(FamiliesTest, ReadsTheConfigOfGpt2) {
  const ModelConfig config = Parse(std::string(kGpt2) + "}");
  EXPECT_EQ(config.family, &kGpt2Family);
  EXPECT_EQ(config.intermediate_size, 96);  // 4 times the width
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.norm.kind, NormKind::kLayer);
  EXPECT_EQ(config.norm.eps, 1e-5f);
  EXPECT_EQ(config.positions, PositionKind::kLearned);
  EXPECT_EQ(config.position_rows, 20);
  EXPECT_EQ(config.rotary_dim(), 0);
  EXPECT_EQ(config.activation, Activation::kGeluTanh);
  EXPECT_FALSE(config.gated_mlp);
  EXPECT_TRUE(config.qkv_bias && config.output_bias && config.mlp_bias && config.norm.bias);
  EXPECT_TRUE(config.tie_word_embeddings && config.causal && config.has_lm_head);
  EXPECT_EQ(Parse(std::string(kGpt2) + R"(, "activation_function": "relu"})").activation,
            Activation::kRelu);
}

TEST(FamiliesTest, ReadsTheConfigOfBert) {
  const ModelConfig config = Parse(std::string(kBert) + "}");
  EXPECT_EQ(config.norm.order, NormOrder::kPost);
  EXPECT_EQ(config.norm.eps, 1e-12f);
  EXPECT_EQ(config.activation, Activation::kGelu);
  EXPECT_EQ(config.token_types, 2);
  EXPECT_TRUE(config.norm.embedding);
  EXPECT_FALSE(config.norm.final || config.causal || config.has_lm_head);
}

TEST(FamiliesTest, Qwen2HasBiasesOnlyForQkv) {
  const ModelConfig config = Parse(Qwen2(R"(, "sliding_window": 128, "rope_theta": 1e6)"));
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_FALSE(config.output_bias || config.mlp_bias);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.window_of(3), 0);  // use_sliding_window is false
  const ModelConfig windowed =
      Parse(Qwen2(R"(, "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 2)"));
  EXPECT_EQ(windowed.window_of(1), 0);
  EXPECT_EQ(windowed.window_of(2), 8);
}

TEST(FamiliesTest, SluiceReadsEveryKey) {
  const ModelConfig config = Parse(Sluice(R"({
    "norm": {"kind": "layer", "eps": 1e-3, "weight": false, "bias": true, "order": "query",
             "embedding": true, "final": false, "depth_scale": true},
    "positions": {"kind": "rope", "dims": 4, "reversed": true},
    "attention": {"causal": false, "qk_norm": true, "qk_norm_eps": 1e-4, "query_gain": true},
    "mlp": {"activation": "squared_relu", "gated": false},
    "biases": {"qkv": true, "o": true, "mlp": true, "head": true},
    "branch_scale": true, "residual_mix": true, "skip_weights": true, "embedding_scale": -2.5,
    "logit_soft_cap": 30,
    "input": {"kind": "both", "width": 7, "adapter": "dense", "bias": true}})"));
  EXPECT_EQ(config.norm.kind, NormKind::kLayer);
  EXPECT_EQ(config.norm.eps, 1e-3f);
  EXPECT_EQ(config.norm.order, NormOrder::kQuery);
  EXPECT_TRUE(config.norm.bias && config.norm.embedding && config.norm.depth_scale);
  EXPECT_FALSE(config.norm.weight || config.norm.final);
  EXPECT_EQ(config.rotary_dim(), 4);
  EXPECT_TRUE(config.rope.reversed);
  EXPECT_FALSE(config.causal || config.gated_mlp || config.parallel_blocks);
  EXPECT_TRUE(config.qk_norm && config.query_gain);
  EXPECT_EQ(config.qk_norm_eps, 1e-4f);
  EXPECT_EQ(config.activation, Activation::kSquaredRelu);
  EXPECT_TRUE(config.qkv_bias && config.output_bias && config.mlp_bias && config.head_bias);
  EXPECT_TRUE(config.branch_scale && config.residual_mix && config.skip_weights);
  EXPECT_EQ(config.skips(), 2);
  EXPECT_EQ(config.embedding_scale, -2.5f);
  EXPECT_EQ(config.logit_soft_cap, 30.0f);
  EXPECT_EQ(config.input, InputKind::kBoth);
  EXPECT_EQ(config.input_adapter, InputAdapter::kDense);
  EXPECT_EQ(config.input_width, 7);
  EXPECT_TRUE(config.input_adapter_bias);
}

TEST(FamiliesTest, SluiceWithoutKeysIsAPlainLlama) {
  const ModelConfig config = Parse(Sluice("{}"));
  ModelConfig llama = config;
  llama.family = &kLlamaFamily;
  EXPECT_EQ(BuildGraph(config).ops.size(), BuildGraph(llama).ops.size());
  EXPECT_EQ(config.rotary_dim(), config.head_dim);
  EXPECT_TRUE(config.causal && config.gated_mlp && config.norm.weight && config.norm.final);
}

TEST(FamiliesTest, HeadDimMayBeOddWithoutRope) {
  EXPECT_EQ(Parse(Sluice(R"({"positions": {"kind": "none"}}, "head_dim": 7)")).head_dim, 7);
  EXPECT_EQ(Parse(Sluice(R"({"positions": {"dims": 4}}, "head_dim": 7)")).rotary_dim(), 4);
}

TEST(FamiliesTest, LearnedPositionsMayHaveAnOffset) {
  const ModelConfig config = Parse(Sluice(R"({"positions": {"kind": "learned", "offset": 2},
    "position_wise": {"max_positions": 9}})"));
  EXPECT_EQ(config.max_positions, 9);
  EXPECT_EQ(config.position_rows, 22);  // the size of the table; max_positions does not shorten it
  for (const GraphOp& op : BuildGraph(config).ops) {
    const auto* embed = std::get_if<EmbedOp>(&op);
    if (embed == nullptr || embed->index != EmbedIndex::kPosition) continue;
    EXPECT_EQ(embed->table.shape, (std::vector<int64_t>{22, 24}));
    EXPECT_EQ(embed->table.first, 2 * 24);
  }
}

struct BadFamilyConfigRow {
  const char* name;
  std::string text;
  const char* error;
};
class BadFamilyConfigTable : public TableTest<BadFamilyConfigRow> {};

TEST_P(BadFamilyConfigTable, TheErrorNamesTheFault) {
  const auto config = ParseModelConfig(row().text);
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(config.status().message()), HasSubstr(row().error));
}

const BadFamilyConfigRow kBadFamilyConfigRows[] = {
    {.name = "AGpt2InnerWidthOfZeroIsRefused",
     .text = std::string(kGpt2) + R"(, "n_inner": 0})",
     .error = "n_inner is 0"},
    {.name = "Gpt2HeadsThatDoNotDivideTheWidthAreRefused",
     .text = std::string(kGpt2) + R"(, "n_head": 5})",
     .error = "n_head"},
    {.name = "Gpt2ScalingByLayerIsRefused",
     .text = std::string(kGpt2) + R"(, "scale_attn_by_inverse_layer_idx": true})",
     .error = "scale_attn_by_inverse_layer_idx is not supported"},
    {.name = "AnUnsupportedActivationOfGpt2IsRefused",
     .text = std::string(kGpt2) + R"(, "activation_function": "quick_gelu"})",
     .error = "activation_function is not supported"},
    {.name = "Gpt2WithXsaIsRefused",
     .text = std::string(kGpt2) + R"(, "sluice": {"xsa": {"layers": [0]}}})",
     .error = "sluice.xsa is not supported for GPT2LMHeadModel"},
    {.name = "Gpt2WithANormOfSluiceIsRefused",
     .text = std::string(kGpt2) + R"(, "sluice": {"norm": {}}})",
     .error = "sluice.norm is not a known key"},
    {.name = "Gpt2WithAnAdapterIsRefused",
     .text = std::string(kGpt2) + R"(, "sluice": {"input": {"kind": "both", "width": 9,
                                                      "adapter": "dense"}}})",
     .error = "sluice.input has an adapter"},
    {.name = "BertRelativePositionsAreRefused",
     .text = std::string(kBert) + R"(, "position_embedding_type": "relative_key"})",
     .error = "position_embedding_type is not supported"},
    {.name = "BertAsADecoderIsRefused",
     .text = std::string(kBert) + R"(, "is_decoder": true})",
     .error = "is_decoder is not supported"},
    {.name = "ANormBiasWithoutItsKindIsRefused",
     .text = Sluice(R"({"norm": {"kind": "rms", "bias": true}})"),
     .error = "sluice.norm.bias needs kind"},
    {.name = "AnUnsupportedNormIsRefused",
     .text = Sluice(R"({"norm": {"kind": "batch"}})"),
     .error = "sluice.norm.kind is not supported"},
    {.name = "ANormEpsOfZeroIsRefused",
     .text = Sluice(R"({"norm": {"eps": 0}})"),
     .error = "sluice.norm.eps is 0"},
    {.name = "AnUnknownKeyOfTheNormIsRefused",
     .text = Sluice(R"({"norm": {"epsilon": 1}})"),
     .error = "sluice.norm.epsilon is not a known key"},
    {.name = "AnOddNumberOfRotatedDimsIsRefused",
     .text = Sluice(R"({"positions": {"dims": 3}})"),
     .error = "sluice.positions.dims is 3, must be even"},
    {.name = "MoreRotatedDimsThanAHeadHasAreRefused",
     .text = Sluice(R"({"positions": {"dims": 8}})"),
     .error = "sluice.positions.dims is 8, must be in [1, 6]"},
    {.name = "AnOddHeadDimIsRefused",
     .text = Sluice(R"({}, "head_dim": 7)"),
     .error = "sluice.positions.dims is 7, must be even"},
    {.name = "RotatedDimsWithoutRopeAreRefused",
     .text = Sluice(R"({"positions": {"kind": "none", "dims": 2}})"),
     .error = "sluice.positions.dims needs kind"},
    {.name = "AnOffsetWithRopeIsRefused",
     .text = Sluice(R"({"positions": {"kind": "rope", "offset": 1}})"),
     .error = "sluice.positions.offset needs kind"},
    {.name = "AnUnsupportedActivationIsRefused",
     .text = Sluice(R"({"mlp": {"activation": "mish"}})"),
     .error = "sluice.mlp.activation is not supported"},
    {.name = "APositionWiseGateThatTheMlpLacksIsRefused",
     .text = Sluice(R"({"mlp": {"gated": false}, "position_wise": {"max_positions": 4,
                  "projections": {"gate": [0]}}})"),
     .error = "sluice.position_wise.projections.gate names a matrix"},
    {.name = "AParallelBlockWithPostNormIsRefused",
     .text = Sluice(R"({"block": "parallel", "norm": {"order": "post"}})"),
     .error = "sluice.block parallel needs"},
    {.name = "ANegativeSoftCapIsRefused",
     .text = Sluice(R"({"logit_soft_cap": -1})"),
     .error = "sluice.logit_soft_cap is -1"},
    {.name = "AnEmbeddingScaleThatIsTooLargeIsRefused",
     .text = Sluice(R"({"embedding_scale": 1e7})"),
     .error = "sluice.embedding_scale is 1e+07"},
    {.name = "AWidthWithoutEmbedsIsRefused",
     .text = Sluice(R"({"input": {"width": 9}})"),
     .error = "sluice.input.width needs kind"},
    {.name = "AWidthOtherThanTheHiddenSizeIsRefused",
     .text = Sluice(R"({"input": {"kind": "embeds", "width": 9}})"),
     .error = "sluice.input.width is 9, must be hidden_size 24"},
    {.name = "AnAdapterThatIsTooWideIsRefused",
     .text = Sluice(R"({"input": {"kind": "embeds", "width": 65537, "adapter": "dense"}})"),
     .error = "sluice.input.width is 65537"},
    {.name = "APositionWiseAdapterWithoutPositionsIsRefused",
     .text = Sluice(R"({"input": {"kind": "embeds", "adapter": "position_wise"}})"),
     .error = "sluice.input.adapter position_wise needs position_wise.max_positions"},
    {.name = "ACausalThatIsANumberIsRefused",
     .text = Sluice(R"({"attention": {"causal": 0}})"),
     .error = "sluice.attention.causal is not true or false"},
};
SLUICE_TABLE(BadFamilyConfigTable, kBadFamilyConfigRows);

TEST(FamiliesTest, RoundTripsTheWritersSluiceConfig) {
  ModelConfig config = testing::TinySluiceConfig(4);
  config.norm = {.kind = NormKind::kLayer, .eps = 1e-3f, .bias = true, .order = NormOrder::kPost};
  config.positions = PositionKind::kLearned;
  config.position_offset = 3;
  config.position_rows = config.max_positions + 3;
  config.activation = Activation::kGelu;
  config.residual_mix = config.skip_weights = config.branch_scale = true;
  config.input = InputKind::kBoth;
  config.input_width = 5;
  config.input_adapter = InputAdapter::kDense;
  const std::string json = testing::ConfigJson(config);
  EXPECT_EQ(testing::ConfigJson(Parse(json)), json);
}

// Returns every tensor that a graph reads, as name@first:shape.
std::set<std::string> Tensors(const Graph& graph) {
  std::set<std::string> all;
  const auto add = [&all](const TensorPart& part) {
    if (!part.present()) return;
    std::string text = part.name + "@" + std::to_string(part.first) + ":";
    for (const int64_t size : part.shape) text += " " + std::to_string(size);
    all.insert(text);
  };
  for (const GraphOp& op : graph.ops) {
    if (const auto* embed = std::get_if<EmbedOp>(&op)) add(embed->table);
    if (const auto* norm = std::get_if<NormOp>(&op)) add(norm->weight), add(norm->bias);
    if (const auto* linear = std::get_if<LinearOp>(&op)) add(linear->weight), add(linear->bias);
    if (const auto* mix = std::get_if<MixOp>(&op)) add(mix->a_weight), add(mix->b_weight);
    if (const auto* head = std::get_if<HeadOp>(&op)) add(head->weight), add(head->bias);
  }
  return all;
}

TEST(FamiliesTest, Gpt2ReadsPartsOfItsFusedTensor) {
  const ModelConfig config = Parse(std::string(kGpt2) + "}");
  EXPECT_THAT(
      Tensors(BuildGraph(config)),
      IsSupersetOf({"transformer.wte.weight@0: 50 24", "transformer.wpe.weight@0: 20 24",
                    "transformer.h.1.attn.c_attn.weight@0: 24 72",
                    "transformer.h.1.attn.c_attn.weight@24: 24 72",
                    "transformer.h.1.attn.c_attn.weight@48: 24 72",
                    "transformer.h.1.attn.c_attn.bias@48: 72",
                    "transformer.h.1.attn.c_proj.weight@0: 24 24",
                    "transformer.h.0.mlp.c_fc.weight@0: 24 96",
                    "transformer.h.0.mlp.c_proj.weight@0: 96 24", "transformer.ln_f.bias@0: 24"}));
  const std::set<std::string> bare = Tensors(BuildGraph(config, {.without_prefix = true}));
  EXPECT_TRUE(bare.contains("h.0.ln_1.weight@0: 24"));
  for (const std::string& name : bare) EXPECT_FALSE(name.starts_with("transformer.")) << name;
}

TEST(FamiliesTest, SkipConnectionsAreReadInReverseOrder) {
  ModelConfig config = testing::TinySluiceConfig(5);
  config.skip_weights = true;
  std::vector<std::string> mixes;
  const Graph graph = BuildGraph(config);
  for (const GraphOp& op : graph.ops) {
    const auto* mix = std::get_if<MixOp>(&op);
    if (mix == nullptr || mix->b == kNoBuffer) continue;
    mixes.push_back(graph.buffers[mix->b].name + " * " + std::to_string(mix->b_weight.first / 32));
  }
  EXPECT_EQ(mixes, (std::vector<std::string>{"skip_1 * 0", "skip_0 * 1"}));
}

TEST(FamiliesTest, TheCheckpointsTensorNamesDetermineTheSpelling) {
  const auto spelling = [](const ModelFamily& family, std::set<std::string> names) {
    return FindSpelling(family, [names](const std::string& name) { return names.contains(name); });
  };
  EXPECT_FALSE(spelling(kGpt2Family, {"transformer.wte.weight"}).without_prefix);
  EXPECT_TRUE(spelling(kGpt2Family, {"wte.weight"}).without_prefix);
  EXPECT_FALSE(spelling(kGpt2Family, {}).without_prefix);
  const std::string norm = "embeddings.LayerNorm.gamma";
  EXPECT_TRUE(spelling(kBertFamily, {"bert." + norm}).gamma_beta);
  const TensorSpelling early = spelling(kBertFamily, {"embeddings.word_embeddings.weight", norm});
  EXPECT_TRUE(early.without_prefix && early.gamma_beta);
}

}  // namespace
}  // namespace sluice
