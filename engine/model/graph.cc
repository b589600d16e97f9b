#include "engine/model/graph.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

class Builder {
 public:
  Builder(const ModelConfig& config, const TensorSpelling& spelling)
      : config_(config),
        names_(NamesOf(config.family)),
        spelling_(spelling),
        prefix_(spelling.without_prefix ? "" : names_.prefix) {
    residual_ = AddBuffer("residual", config.hidden_size);
    normed_ = AddBuffer("normed", config.hidden_size);
    q_ = AddBuffer("q", config.heads * config.head_dim);
    k_ = AddBuffer("k", config.kv_heads * config.head_dim);
    v_ = AddBuffer("v", config.kv_heads * config.head_dim);
    if (config.gated_mlp) gate_ = AddBuffer("gate", config.intermediate_size);
    up_ = AddBuffer("up", config.intermediate_size);
    if (config.branch_scale) branch_ = AddBuffer("branch", config.hidden_size);
    if (config.residual_mix) embedded_ = AddBuffer("embedded", config.hidden_size);
    for (int64_t i = 0; i < config.skips(); ++i) {
      skips_.push_back(AddBuffer(absl::StrCat("skip_", i), config.hidden_size));
    }
  }

  Graph Build() && {
    AddEmbedding();
    MarkState();
    for (int32_t layer = 0; layer < config_.layers; ++layer) {
      AddLayer(layer);
      MarkState();
    }
    graph_.output = residual_;
    if (config_.norm.final) {
      Norm(residual_, normed_, prefix_ + names_.final_norm, 1);
      graph_.output = normed_;
    }
    if (config_.has_lm_head) AddHead();
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

  void MarkState() { graph_.states.push_back({graph_.ops.size(), residual_}); }

  int64_t Width(BufferId id) const { return graph_.buffers[id].width; }
  std::string LayerPrefix(int32_t layer) const {
    return absl::StrCat(prefix_, names_.layer, layer, ".");
  }

  // Returns the table of a module, with `rows` rows as wide as the residual.
  TensorPart Table(const char* module, int64_t rows, int64_t first_row = 0) const {
    const int64_t width = config_.hidden_size;
    return {absl::StrCat(prefix_, module, ".weight"), {rows, width}, first_row * width};
  }

  void Norm(BufferId in, BufferId out, const std::string& module, float scale) {
    const NormConfig& norm = config_.norm;
    const int64_t width = config_.hidden_size;
    const char* const weight = spelling_.gamma_beta ? ".gamma" : ".weight";
    const char* const bias = spelling_.gamma_beta ? ".beta" : ".bias";
    Add(NormOp{.in = in,
               .out = out,
               .kind = norm.kind,
               .weight = norm.weight ? TensorPart{module + weight, {width}} : TensorPart{},
               .bias = norm.bias ? TensorPart{module + bias, {width}} : TensorPart{},
               .eps = norm.eps,
               .width = width,
               .scale = scale});
  }

  // Adds out += b * weight, where the weight is row `row` of a tensor.
  void AddScaled(BufferId out, BufferId b, TensorPart weight) {
    Add(MixOp{.a = out, .b = b, .out = out, .a_weight = {}, .b_weight = std::move(weight)});
  }

  void Copy(BufferId from, BufferId to) {
    Add(MixOp{.a = from, .b = kNoBuffer, .out = to, .a_weight = {}, .b_weight = {}});
  }

  void Dense(BufferId in, BufferId out, const std::string& module, bool bias, bool accumulate) {
    const int64_t k = Width(in), n = Width(out);
    Add(LinearOp{.in = in,
                 .out = out,
                 .weight = {module + ".weight", names_.in_out ? std::vector<int64_t>{k, n}
                                                              : std::vector<int64_t>{n, k}},
                 .layout = names_.in_out ? MatrixLayout::kInOut : MatrixLayout::kOutIn,
                 .bias = bias ? TensorPart{module + ".bias", {n}} : TensorPart{},
                 .position_bias = false,
                 .accumulate = accumulate});
  }

  void PositionWise(BufferId in, BufferId out, const std::string& module, bool accumulate) {
    const PositionWiseConfig& position_wise = config_.position_wise;
    const int64_t positions = position_wise.max_positions, k = Width(in), n = Width(out);
    TensorPart bias;
    if (position_wise.bias == PositionWiseBias::kFeature) bias = {module + ".bias", {n}};
    if (position_wise.bias == PositionWiseBias::kPositionFeature) {
      bias = {module + ".position_bias", {positions, n}};
    }
    Add(LinearOp{.in = in,
                 .out = out,
                 .weight = {module + ".position_weight", {positions, k, n}},
                 .layout = MatrixLayout::kPositionInOut,
                 .bias = std::move(bias),
                 .position_bias = position_wise.bias == PositionWiseBias::kPositionFeature,
                 .accumulate = accumulate});
  }

  // Adds q, k and v as consecutive columns of one tensor.
  void Fused(BufferId in, BufferId out, const std::string& module, int64_t first) {
    const int64_t all = Width(q_) + Width(k_) + Width(v_);
    Add(LinearOp{
        .in = in,
        .out = out,
        .weight = {module + ".weight", {Width(in), all}, first},
        .layout = MatrixLayout::kInOut,
        .bias = config_.qkv_bias ? TensorPart{module + ".bias", {all}, first} : TensorPart{},
        .position_bias = false,
        .accumulate = false});
  }

  void Project(int32_t layer, Projection projection, BufferId in, BufferId out, bool bias,
               bool accumulate = false) {
    const int p = static_cast<int>(projection);
    const std::string module = LayerPrefix(layer) + names_.projections[p];
    if (config_.position_wise.layers[p][layer]) return PositionWise(in, out, module, accumulate);
    Dense(in, out, module, bias, accumulate);
  }

  void AddInput() {
    if (config_.input == InputKind::kIds) return;
    if (config_.input_adapter == InputAdapter::kNone) {
      return Add(InputOp{config_.input_width, residual_});
    }
    const BufferId input = AddBuffer("input", config_.input_width);
    Add(InputOp{config_.input_width, input});
    const std::string module = prefix_ + "input_adapter";
    if (config_.input_adapter == InputAdapter::kPositionWise) {
      return PositionWise(input, residual_, module, false);
    }
    Dense(input, residual_, module, config_.input_adapter_bias, false);
  }

  void AddEmbedding() {
    AddInput();
    if (config_.embeds_ids()) {
      Add(EmbedOp{.table = Table(names_.embedding, config_.vocab_size),
                  .index = EmbedIndex::kToken,
                  .out = residual_,
                  .accumulate = false,
                  .scale = config_.embedding_scale});
    }
    if (config_.token_types > 0) {
      AddTable(Table(names_.token_types, config_.token_types), EmbedIndex::kType);
    }
    if (config_.positions == PositionKind::kLearned) {
      AddTable(Table(names_.positions, config_.position_rows, config_.position_offset),
               EmbedIndex::kPosition);
    }
    if (config_.norm.embedding) {
      Norm(residual_, residual_, prefix_ + names_.embedding_norm, 1);
    }
    if (config_.residual_mix) Copy(residual_, embedded_);
  }

  void AddTable(TensorPart table, EmbedIndex index) {
    Add(EmbedOp{.table = std::move(table),
                .index = index,
                .out = residual_,
                .accumulate = true,
                .scale = 1});
  }

  void AddLayer(int32_t layer) {
    const auto skips = std::ssize(skips_);
    const int64_t hidden = config_.hidden_size, late = layer - skips;
    if (late >= 0 && late < skips) {
      AddScaled(residual_, skips_[skips - 1 - late],
                {prefix_ + "skip_weights", {skips, hidden}, late * hidden});
    }
    if (config_.residual_mix) {
      const std::string mix = LayerPrefix(layer) + "residual_mix";
      Add(MixOp{.a = residual_,
                .b = embedded_,
                .out = residual_,
                .a_weight = {mix, {2, hidden}},
                .b_weight = {mix, {2, hidden}, hidden}});
    }
    AddAttention(layer);
    AddMlp(layer);
    if (layer < skips) Copy(residual_, skips_[layer]);
  }

  float NormScale(int32_t layer) const {
    return config_.norm.depth_scale ? static_cast<float>(1 / std::sqrt(layer + 1.0)) : 1.0f;
  }

  // Adds the output of `projection` for `in` to the residual.
  void AddBranch(int32_t layer, Projection projection, BufferId in, bool bias, const char* scale) {
    if (!config_.branch_scale) return Project(layer, projection, in, residual_, bias, true);
    Project(layer, projection, in, branch_, bias);
    AddScaled(residual_, branch_, {LayerPrefix(layer) + scale, {config_.hidden_size}});
  }

  void AddAttention(int32_t layer) {
    const NormOrder order = config_.norm.order;
    const std::string norm = LayerPrefix(layer) + names_.attention_norm;
    if (order != NormOrder::kPost) Norm(residual_, normed_, norm, NormScale(layer));
    AddQkv(layer, order == NormOrder::kPost ? residual_ : normed_,
           order == NormOrder::kPre ? normed_ : residual_);
    AddHeadwise(layer);
    Add(RopeStoreOp{layer, q_, k_, v_});
    const bool xsa = config_.xsa.layers[layer];
    Add(AttentionOp{
        .layer = layer,
        .q = q_,
        .out = q_,
        .causal = config_.causal,
        .xsa = xsa,
        .xsa_gate = xsa && config_.xsa.gate ? LayerPrefix(layer) + "self_attn.xsa_alpha" : ""});
    if (order == NormOrder::kQuery) std::swap(residual_, normed_);
    AddBranch(layer, Projection::kO, q_, config_.output_bias, "attention_scale");
    if (order == NormOrder::kPost) Norm(residual_, residual_, norm, NormScale(layer));
  }

  void AddQkv(int32_t layer, BufferId q_in, BufferId kv_in) {
    if (names_.fused_qkv) {
      const std::string module =
          LayerPrefix(layer) + names_.projections[static_cast<int>(Projection::kQ)];
      Fused(q_in, q_, module, 0);
      Fused(kv_in, k_, module, Width(q_));
      return Fused(kv_in, v_, module, Width(q_) + Width(k_));
    }
    Project(layer, Projection::kQ, q_in, q_, config_.qkv_bias);
    Project(layer, Projection::kK, kv_in, k_, config_.qkv_bias);
    Project(layer, Projection::kV, kv_in, v_, config_.qkv_bias);
  }

  void AddHeadwise(int32_t layer) {
    if (config_.qk_norm) {
      for (const BufferId heads : {q_, k_}) {
        Add(NormOp{.in = heads,
                   .out = heads,
                   .kind = NormKind::kRms,
                   .weight = {},
                   .bias = {},
                   .eps = config_.qk_norm_eps,
                   .width = config_.head_dim,
                   .scale = 1});
      }
    }
    if (config_.query_gain) {
      Add(MixOp{.a = q_,
                .b = kNoBuffer,
                .out = q_,
                .a_weight = {LayerPrefix(layer) + "self_attn.q_gain", {config_.heads}},
                .b_weight = {},
                .repeat = config_.head_dim});
    }
  }

  void AddMlp(int32_t layer) {
    const NormOrder order = config_.norm.order;
    const std::string norm = LayerPrefix(layer) + names_.mlp_norm;
    BufferId in = residual_;
    if (order == NormOrder::kPre) {
      in = normed_;
      if (!config_.parallel_blocks) Norm(residual_, normed_, norm, NormScale(layer));
    }
    if (order == NormOrder::kQuery) Norm(residual_, residual_, norm, NormScale(layer));
    if (config_.gated_mlp) Project(layer, Projection::kGate, in, gate_, config_.mlp_bias);
    Project(layer, Projection::kUp, in, up_, config_.mlp_bias);
    Add(ActivationOp{.activation = config_.activation,
                     .in = config_.gated_mlp ? gate_ : up_,
                     .up = config_.gated_mlp ? up_ : kNoBuffer,
                     .out = up_});
    AddBranch(layer, Projection::kDown, up_, config_.mlp_bias, "mlp_scale");
    if (order == NormOrder::kPost) Norm(residual_, residual_, norm, NormScale(layer));
  }

  void AddHead() {
    if (config_.family == Family::kBert) AddBertTransform();
    TensorPart weight = {names_.head, {config_.vocab_size, config_.hidden_size}};
    if (config_.tie_word_embeddings) weight = Table(names_.embedding, config_.vocab_size);
    Add(HeadOp{.in = graph_.output,
               .weight = std::move(weight),
               .bias = config_.head_bias ? TensorPart{names_.head_bias, {config_.vocab_size}}
                                         : TensorPart{},
               .soft_cap = config_.logit_soft_cap});
  }

  // Adds the transform of a masked language model before its head.
  void AddBertTransform() {
    const std::string module = "cls.predictions.transform.";
    Dense(graph_.output, normed_, module + "dense", true, false);
    Add(ActivationOp{config_.activation, normed_, kNoBuffer, normed_});
    Norm(normed_, normed_, module + "LayerNorm", 1);
    graph_.output = normed_;
  }

  const ModelConfig& config_;
  const TensorNames& names_;
  const TensorSpelling spelling_;
  const std::string prefix_;
  Graph graph_;
  BufferId residual_, normed_, q_, k_, v_, up_;
  BufferId gate_ = kNoBuffer, branch_ = kNoBuffer, embedded_ = kNoBuffer;
  std::vector<BufferId> skips_;
};

}  // namespace

Graph BuildGraph(const ModelConfig& config, const TensorSpelling& spelling) {
  return Builder(config, spelling).Build();
}

}  // namespace sluice
