#include "engine/model/graph.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr const char* kProjectionNames[kProjections] = {"q_proj", "k_proj", "v_proj", "o_proj"};

class Builder {
 public:
  explicit Builder(const ModelConfig& config) : config_(config) {
    const int64_t q_width = config.heads * config.head_dim;
    const int64_t kv_width = config.kv_heads * config.head_dim;
    residual_ = AddBuffer("residual", config.hidden_size);
    normed_ = AddBuffer("normed", config.hidden_size);
    q_ = AddBuffer("q", q_width);
    k_ = AddBuffer("k", kv_width);
    v_ = AddBuffer("v", kv_width);
    gate_ = AddBuffer("gate", config.intermediate_size);
    up_ = AddBuffer("up", config.intermediate_size);
  }

  Graph Build() && {
    const std::string embedding = "model.embed_tokens.weight";
    Add(EmbedOp{embedding, residual_});
    for (int32_t layer = 0; layer < config_.layers; ++layer) {
      AddAttention(layer);
      AddMlp(layer);
    }
    Norm("model.norm.weight");
    Add(HeadOp{normed_, config_.tie_word_embeddings ? embedding : "lm_head.weight"});
    return std::move(graph_);
  }

 private:
  BufferId AddBuffer(std::string name, int64_t width) {
    graph_.buffers.push_back({std::move(name), width});
    return static_cast<BufferId>(graph_.buffers.size() - 1);
  }

  template <typename Op>
  void Add(Op op) {
    graph_.ops.emplace_back(std::move(op));
  }

  void Norm(std::string weight) {
    Add(RmsNormOp{residual_, normed_, std::move(weight), config_.rms_norm_eps});
  }

  void Dense(BufferId in, BufferId out, const std::string& module, bool bias, bool accumulate) {
    Add(LinearOp{.in = in,
                 .out = out,
                 .weight = module + ".weight",
                 .bias = bias ? module + ".bias" : "",
                 .position_wise = false,
                 .position_bias = false,
                 .positions = 0,
                 .accumulate = accumulate});
  }

  void Project(int32_t layer, Projection projection, BufferId in, BufferId out, bool accumulate) {
    const int p = static_cast<int>(projection);
    const std::string module =
        absl::StrCat("model.layers.", layer, ".self_attn.", kProjectionNames[p]);
    const PositionWiseConfig& position_wise = config_.position_wise;
    if (!position_wise.layers[p][layer]) {
      return Dense(in, out, module, config_.attention_bias, accumulate);
    }
    std::string bias;
    if (position_wise.bias == PositionWiseBias::kFeature) bias = module + ".bias";
    if (position_wise.bias == PositionWiseBias::kPositionFeature) bias = module + ".position_bias";
    Add(LinearOp{.in = in,
                 .out = out,
                 .weight = module + ".position_weight",
                 .bias = std::move(bias),
                 .position_wise = true,
                 .position_bias = position_wise.bias == PositionWiseBias::kPositionFeature,
                 .positions = position_wise.max_positions,
                 .accumulate = accumulate});
  }

  void AddAttention(int32_t layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    Norm(prefix + "input_layernorm.weight");
    Project(layer, Projection::kQ, normed_, q_, false);
    Project(layer, Projection::kK, normed_, k_, false);
    Project(layer, Projection::kV, normed_, v_, false);
    Add(RopeStoreOp{layer, q_, k_, v_});
    const bool xsa = config_.xsa.layers[layer];
    Add(AttentionOp{.layer = layer,
                    .q = q_,
                    .out = q_,
                    .causal = config_.causal,
                    .xsa = xsa,
                    .xsa_gate = xsa && config_.xsa.gate ? prefix + "self_attn.xsa_alpha" : ""});
    Project(layer, Projection::kO, q_, residual_, true);
  }

  void AddMlp(int32_t layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    Norm(prefix + "post_attention_layernorm.weight");
    Dense(normed_, gate_, prefix + "mlp.gate_proj", config_.mlp_bias, false);
    Dense(normed_, up_, prefix + "mlp.up_proj", config_.mlp_bias, false);
    Add(SwiGluOp{gate_, up_, gate_});
    Dense(gate_, residual_, prefix + "mlp.down_proj", config_.mlp_bias, true);
  }

  const ModelConfig& config_;
  Graph graph_;
  BufferId residual_, normed_, q_, k_, v_, gate_, up_;
};

}  // namespace

Graph BuildGraph(const ModelConfig& config) { return Builder(config).Build(); }

}  // namespace sluice
