#include "engine/model/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <variant>
#include <vector>

#include "tests/support/checkpoint_writer.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

// Describes each op of a graph in one line: its kind and its names.
struct Describe {
  const Graph& graph;

  std::string Name(BufferId id) const { return graph.buffers.at(id).name; }

  std::string operator()(const EmbedOp& op) const {
    const char* const by[] = {"", " by position", " first"};
    return "embed " + op.table.name + by[static_cast<int>(op.index)];
  }
  std::string operator()(const InputOp& op) const { return "input > " + Name(op.out); }
  std::string operator()(const NormOp& op) const {
    return "norm " + (op.weight.present() ? op.weight.name : Name(op.in));
  }
  std::string operator()(const LinearOp& op) const {
    return Name(op.in) + (op.position_wise() ? " pw> " : " > ") + Name(op.out) +
           (op.accumulate ? "+ " : " ") + Part(op.weight) +
           (op.bias.present() ? " " + Part(op.bias) : "");
  }
  std::string operator()(const RouteOp& op) const {
    return "route " + Name(op.logits) + " " + Name(op.in) + " > " + Name(op.out);
  }
  std::string operator()(const CombineOp& op) const {
    return "combine " + Name(op.in) + " > " + Name(op.out) + (op.accumulate ? "+" : "") +
           (op.bias.present() ? " " + Part(op.bias) : "");
  }
  std::string operator()(const RopeStoreOp& op) const { return "rope " + std::to_string(op.layer); }
  std::string operator()(const AttentionOp& op) const {
    return "attention " + std::to_string(op.layer) + (op.xsa ? " xsa" : "") +
           (op.xsa_gate.empty() ? "" : " " + op.xsa_gate);
  }
  std::string operator()(const ExchangeOp& op) const {
    return "exchange " + Name(op.in) + " > " + Name(op.out);
  }
  std::string operator()(const ActivationOp& op) const {
    return std::to_string(static_cast<int>(op.activation)) + "(" + Name(op.in) + ")" +
           (op.up == kNoBuffer ? "" : " * " + Name(op.up)) + " > " + Name(op.out);
  }
  std::string operator()(const MixOp& op) const {
    return Name(op.a) + Times(op.a_weight) +
           (op.b == kNoBuffer ? "" : " + " + Name(op.b) + Times(op.b_weight)) + " > " +
           Name(op.out);
  }
  std::string operator()(const HeadOp& op) const {
    return "head " + op.weight.name + (op.bias.present() ? " " + op.bias.name : "");
  }

  static std::string Part(const TensorPart& part) {
    return part.name + (part.first > 0 ? "@" + std::to_string(part.first) : "");
  }
  static std::string Times(const TensorPart& part) {
    return part.present() ? " * " + Part(part) : "";
  }
};

std::vector<std::string> Lines(const Graph& graph) {
  std::vector<std::string> lines;
  for (const GraphOp& op : graph.ops) lines.push_back(std::visit(Describe{graph}, op));
  return lines;
}

TEST(GraphTest, APlainLlamaHasTheseOps) {
  EXPECT_THAT(
      Lines(BuildGraph(testing::TinyConfig(1))),
      ElementsAre("embed model.embed_tokens.weight", "norm model.layers.0.input_layernorm.weight",
                  "normed > q model.layers.0.self_attn.q_proj.weight",
                  "normed > k model.layers.0.self_attn.k_proj.weight",
                  "normed > v model.layers.0.self_attn.v_proj.weight", "rope 0", "attention 0",
                  "q > residual+ model.layers.0.self_attn.o_proj.weight",
                  "norm model.layers.0.post_attention_layernorm.weight",
                  "normed > gate model.layers.0.mlp.gate_proj.weight",
                  "normed > up model.layers.0.mlp.up_proj.weight", "0(gate) * up > up",
                  "up > residual+ model.layers.0.mlp.down_proj.weight", "norm model.norm.weight",
                  "head lm_head.weight"));
}

TEST(GraphTest, BiasesTiedWeightsAndExtensionsChangeTheOps) {
  ModelConfig config = testing::TinyConfig(2);
  config.qkv_bias = config.output_bias = true;
  config.tie_word_embeddings = true;
  config.position_wise.layers[static_cast<int>(Projection::kV)][1] = true;
  config.position_wise.layers[static_cast<int>(Projection::kO)][1] = true;
  config.position_wise.max_positions = 9;
  config.position_wise.bias = PositionWiseBias::kPositionFeature;
  config.xsa.layers[1] = true;
  config.xsa.gate = true;
  const Graph graph = BuildGraph(config);
  const std::vector<std::string> lines = Lines(graph);
  const std::set<std::string> all(lines.begin(), lines.end());
  const std::string layer0 = "model.layers.0.self_attn.";
  const std::string layer1 = "model.layers.1.self_attn.";
  for (const std::string& line :
       {"normed > v " + layer0 + "v_proj.weight " + layer0 + "v_proj.bias",
        "normed > k " + layer1 + "k_proj.weight " + layer1 + "k_proj.bias",
        "normed pw> v " + layer1 + "v_proj.position_weight " + layer1 + "v_proj.position_bias",
        "q pw> residual+ " + layer1 + "o_proj.position_weight " + layer1 + "o_proj.position_bias",
        std::string("attention 0"), "attention 1 xsa " + layer1 + "xsa_alpha",
        std::string("head model.embed_tokens.weight")}) {
    EXPECT_TRUE(all.contains(line)) << line;
  }
  for (const GraphOp& op : graph.ops) {
    if (const auto* linear = std::get_if<LinearOp>(&op); linear && linear->position_wise()) {
      EXPECT_EQ(linear->weight.shape[0], 9);
      EXPECT_TRUE(linear->bias_each);
    }
  }
}

TEST(GraphTest, TheBiasOfAPositionWiseLayerIgnoresAttentionBias) {
  ModelConfig config = testing::TinyConfig(1);
  config.qkv_bias = config.output_bias = true;
  config.position_wise.layers[static_cast<int>(Projection::kQ)][0] = true;
  config.position_wise.max_positions = 9;
  const std::string q = "model.layers.0.self_attn.q_proj";
  EXPECT_EQ(Lines(BuildGraph(config))[2], "normed pw> q " + q + ".position_weight");
  config.position_wise.bias = PositionWiseBias::kFeature;
  EXPECT_EQ(Lines(BuildGraph(config))[2], "normed pw> q " + q + ".position_weight " + q + ".bias");
}

TEST(GraphTest, RotatedNeighboursAreReadAsHalvesOfTheirHead) {
  ModelConfig config = testing::TinyConfig(1);
  config.head_dim = 6;
  config.qkv_bias = true;
  config.rope.neighbours = true;
  const Graph graph = BuildGraph(config);
  for (const size_t op : {2, 3}) {
    const auto& linear = std::get<LinearOp>(graph.ops[op]);
    const int64_t width = config.hidden_size;
    std::vector<int64_t> rows, values;
    for (int64_t i = 0; i < 12; ++i) {
      rows.push_back(linear.weight.FirstOfRun(i) / width);
      values.push_back(linear.bias.FirstOfRun(i));
    }
    EXPECT_EQ(linear.weight.run, width);
    EXPECT_EQ(linear.bias.run, 1);
    EXPECT_THAT(rows, ElementsAre(0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11));
    EXPECT_EQ(rows, values);
  }
  EXPECT_EQ(std::get<LinearOp>(graph.ops[4]).weight.run, 0);  // v
}

TEST(GraphTest, WeightsOfRotatedHeadsMultiplyQueriesAfterTheRotation) {
  ModelConfig config = testing::TinyConfig(1);
  config.qk_norm = true;
  config.qk_norm_weight = QkNormWeight::kRotated;
  const std::vector<std::string> lines = Lines(BuildGraph(config));
  const std::string layer = "model.layers.0.self_attn.";
  EXPECT_THAT(std::vector<std::string>(lines.begin() + 5, lines.begin() + 11),
              ElementsAre("norm q", "norm k", "rope 0", "q * " + layer + "q_norm.weight > q",
                          "q * " + layer + "k_norm.weight > q", "attention 0"));
}

TEST(GraphTest, BuffersAreAsWideAsTheirValues) {
  ModelConfig config = testing::TinyConfig(1);
  config.head_dim = 10;
  const Graph graph = BuildGraph(config);
  std::vector<std::string> widths;
  for (const GraphBuffer& buffer : graph.buffers) {
    widths.push_back(buffer.name + " " + std::to_string(buffer.width));
  }
  EXPECT_THAT(widths,
              ElementsAre("residual 32", "normed 32", "q 40", "k 20", "v 20", "gate 40", "up 40"));
}

}  // namespace
}  // namespace sluice
