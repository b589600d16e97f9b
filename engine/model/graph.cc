#include "engine/model/graph.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/graph_writer.h"

namespace sluice {
namespace {

// Defines the ops of a model and their order.
class Builder : private GraphWriter {
 public:
  Builder(const ModelConfig& config, const TensorSpelling& spelling)
      : GraphWriter(config, spelling) {
    residual_ = AddBuffer("residual", config.hidden_size);
    embedding_ = residual_;
    if (config.embedding_width > 0) embedding_ = AddBuffer("embedding", config.embedding_width);
    normed_ = AddBuffer("normed", config.hidden_size);
    if (config.mixer == MixerKind::kExchange) {
      exchanged_ = AddBuffer("exchanged", config.hidden_size);
    } else {
      q_ = AddBuffer("q", config.heads * config.head_dim);
      k_ = AddBuffer("k", config.kv_heads * config.head_dim);
      v_ = AddBuffer("v", config.kv_heads * config.head_dim);
    }
    if (config.attention_gate) attention_gate_ = AddBuffer("attention_gate", Width(q_));
    if (AnyDenseMlp()) {
      if (config.gated_mlp) gate_ = AddBuffer("gate", config.intermediate_size);
      up_ = AddBuffer("up", config.intermediate_size);
    }
    if (config.experts.count > 0) AddExpertBuffers();
    if (config.branch_scale || PostNorm()) branch_ = AddBuffer("branch", config.hidden_size);
    if (config.parallel_norms) normed_too_ = AddBuffer("normed_too", config.hidden_size);
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
      Norm(residual_, normed_, prefix_ + names_.final_norm);
      graph_.output = normed_;
    }
    graph_.trunk = graph_.output;
    if (config_.has_lm_head) {
      AddHead();
    } else {
      graph_.head_input = graph_.output;
    }
    return std::move(graph_);
  }

 private:
  // Returns whether a layer has an MLP without experts.
  bool AnyDenseMlp() const {
    const std::vector<bool>& layers = config_.experts.layers;
    return config_.has_mlp && (config_.experts.count == 0 || std::ranges::count(layers, false) > 0);
  }

  void AddExpertBuffers() {
    const ExpertsConfig& experts = config_.experts;
    router_ = AddBuffer("router", experts.count);
    expert_in_ = AddBuffer("expert_in", config_.hidden_size, experts.chosen);
    if (config_.gated_mlp) expert_gate_ = AddBuffer("expert_gate", experts.width, experts.chosen);
    expert_up_ = AddBuffer("expert_up", experts.width, experts.chosen);
    expert_out_ = AddBuffer("expert_out", config_.hidden_size, experts.chosen);
  }

  void MarkState() { graph_.states.push_back({graph_.ops.size(), residual_}); }

  // Returns whether branches end with a norm of their own.
  bool PostNorm() const {
    return config_.norm.order == NormOrder::kAround || config_.norm.order == NormOrder::kAfter;
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
                  .out = embedding_,
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
      Norm(embedding_, embedding_, prefix_ + names_.embedding_norm);
    }
    if (embedding_ != residual_) {
      Dense(embedding_, residual_, prefix_ + names_.embedding_projection, true, false);
    }
    if (config_.residual_mix) Copy(residual_, embedded_);
  }

  void AddTable(TensorPart table, EmbedIndex index) {
    Add(EmbedOp{.table = std::move(table),
                .index = index,
                .out = embedding_,
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
    if (config_.mixer == MixerKind::kExchange) {
      AddExchange(layer);
    } else {
      AddAttention(layer);
    }
    if (config_.has_mlp) AddMlp(layer);
    if (layer < skips) Copy(residual_, skips_[layer]);
  }

  float NormScale(int32_t layer) const {
    return config_.norm.depth_scale ? static_cast<float>(1 / std::sqrt(layer + 1.0)) : 1.0f;
  }

  // Adds the output of `projection` for `in` to the residual. If PostNorm(), the norm `post_norm`
  // is applied first.
  void AddBranch(int32_t layer, Projection projection, BufferId in, bool bias,
                 const char* post_norm, const char* scale) {
    Project(layer, projection, in, BranchOut(), bias, branch_ == kNoBuffer);
    EndBranch(layer, post_norm, scale);
  }

  // Returns the buffer that the last op of a branch writes, or adds to if it is the residual.
  BufferId BranchOut() const { return branch_ == kNoBuffer ? residual_ : branch_; }

  // Adds the branch to the residual if its last op has not done this.
  void EndBranch(int32_t layer, const char* post_norm, const char* scale) {
    if (branch_ == kNoBuffer) return;
    if (PostNorm()) Norm(branch_, branch_, LayerPrefix(layer) + post_norm, NormScale(layer));
    AddScaled(residual_, branch_,
              config_.branch_scale ? TensorPart{LayerPrefix(layer) + scale, {config_.hidden_size}}
                                   : TensorPart{});
  }

  void AddExchange(int32_t layer) {
    const std::string norm = LayerPrefix(layer) + names_.attention_norm;
    const bool before = config_.norm.order == NormOrder::kPre && (layer > 0 || config_.norm.first);
    if (before) Norm(residual_, normed_, norm, NormScale(layer));
    Add(ExchangeOp{before ? normed_ : residual_, exchanged_, config_.heads});
    AddScaled(residual_, exchanged_, {});
    if (config_.norm.order == NormOrder::kPost) Norm(residual_, residual_, norm, NormScale(layer));
  }

  void AddAttention(int32_t layer) {
    const NormOrder order = config_.norm.order;
    const std::string norm = LayerPrefix(layer) + names_.attention_norm;
    const bool normed = order == NormOrder::kQuery || order == NormOrder::kAround ||
                        (order == NormOrder::kPre && (layer > 0 || config_.norm.first));
    if (normed) Norm(residual_, normed_, norm, NormScale(layer));
    if (config_.parallel_norms) {
      Norm(residual_, normed_too_, LayerPrefix(layer) + names_.mlp_norm, NormScale(layer));
    }
    const BufferId q_in = normed ? normed_ : residual_;
    AddQkv(layer, q_in, normed && order != NormOrder::kQuery ? normed_ : residual_);
    AddHeadwise(layer);
    Add(RopeStoreOp{layer, q_, k_, v_, RopeUseOf(layer)});
    if (config_.qk_norm && config_.qk_norm_weight == QkNormWeight::kRotated) AddQueryWeights(layer);
    Add(AttentionOf(layer));
    if (config_.attention_gate) {
      Add(NormOf(config_.norm.kind, q_, q_, config_.norm.weight ? GateNorm(layer) : "",
                 config_.norm.bias ? GateNorm(layer) : "", config_.norm.eps, Width(q_), 1));
      Add(ActivationOp{Activation::kSilu, attention_gate_, q_, q_});
    }
    if (order == NormOrder::kQuery) std::swap(residual_, normed_);
    AddBranch(layer, Projection::kO, q_, config_.output_bias, names_.post_attention_norm,
              "attention_scale");
    if (order == NormOrder::kPost) Norm(residual_, residual_, norm, NormScale(layer));
  }

  RopeUse RopeUseOf(int32_t layer) const {
    if (config_.positions != PositionKind::kRope) return RopeUse::kNone;
    if (!config_.unrotated.empty() && config_.unrotated[layer]) return RopeUse::kNone;
    const bool windowed = !config_.windowed.empty() && config_.windowed[layer];
    return windowed && config_.local_rope ? RopeUse::kLocal : RopeUse::kMain;
  }

  AttentionOp AttentionOf(int32_t layer) const {
    const bool xsa = config_.xsa.layers[layer];
    const RelativeBiasConfig& bias = config_.relative_bias;
    const double usual = 1 / std::sqrt(static_cast<double>(config_.head_dim));
    return {.layer = layer,
            .q = q_,
            .out = q_,
            .causal = config_.causal,
            .scale = config_.score_scale > 0 ? config_.score_scale : static_cast<float>(usual),
            .window = config_.window_of(layer),
            .soft_cap = config_.score_soft_cap,
            .alibi = bias.alibi,
            .relative_bias = bias.buckets > 0
                                 ? TensorPart{prefix_ + names_.relative_bias + ".weight",
                                              {bias.buckets, config_.heads}}
                                 : TensorPart{},
            .relative_distance = bias.max_distance,
            .relative = RelativeTablesOf(layer),
            .silu_share = config_.attention_divisor > 0
                              ? static_cast<float>(1 / config_.attention_divisor)
                              : 0.0f,
            .xsa = xsa,
            .xsa_gate = xsa && config_.xsa.gate ? LayerPrefix(layer) + "self_attn.xsa_alpha" : ""};
  }

  std::optional<RelativeTables> RelativeTablesOf(int32_t layer) const {
    const DisentangledConfig& wanted = config_.disentangled;
    if (wanted.span == 0) return std::nullopt;
    const int64_t hidden = config_.hidden_size;
    const std::string norm = prefix_ + names_.relative_norm;
    const auto dense = [&](RelativeTermKind without, Projection shared,
                           const char* own) -> std::optional<LinearOp> {
      if (wanted.terms == without) return std::nullopt;
      const char* const module = wanted.shared ? names_.projections[static_cast<int>(shared)] : own;
      return DenseOf(hidden, config_.heads * config_.head_dim, LayerPrefix(layer) + module,
                     config_.qkv_bias);
    };
    RelativeTables tables = {
        .positions = Table(names_.relative_table, 2 * wanted.span),
        .norm = std::nullopt,
        .keys = dense(RelativeTermKind::kKey, Projection::kK, names_.relative_k),
        .queries = dense(RelativeTermKind::kQuery, Projection::kQ, names_.relative_q),
        .span = wanted.span,
        .max_distance = wanted.max_distance};
    if (wanted.norm) {
      tables.norm = NormOf(config_.norm.kind, kNoBuffer, kNoBuffer, config_.norm.weight ? norm : "",
                           config_.norm.bias ? norm : "", config_.norm.eps, hidden, 1);
    }
    return tables;
  }

  void AddQkv(int32_t layer, BufferId q_in, BufferId kv_in) {
    if (names_.fused_qkv == FusedQkv::kGateFirst) return AddGatedQkv(layer, q_in);
    if (names_.fused_qkv != FusedQkv::kNone) return AddFusedQkv(layer, q_in, kv_in);
    if (config_.attention_gate) {
      Dense(q_in, attention_gate_, LayerPrefix(layer) + names_.attention_gate, config_.qkv_bias,
            false);
    }
    ProjectRotated(layer, Projection::kQ, q_in, q_);
    ProjectRotated(layer, Projection::kK, kv_in, k_);
    Project(layer, Projection::kV, kv_in, v_, config_.qkv_bias);
  }

  // Adds q or k. The ops rotate feature i of a head with feature i + dims/2. If the model rotates
  // neighbours, the features are read in another order, which changes no product of q and k.
  void ProjectRotated(int32_t layer, Projection projection, BufferId in, BufferId out) {
    if (!config_.rope.neighbours) return Project(layer, projection, in, out, config_.qkv_bias);
    const std::string module =
        LayerPrefix(layer) + names_.projections[static_cast<int>(projection)];
    Fused(in, out, module,
          {.all = Width(out), .first = 0, .run = 1, .stride = 1, .evens_first = config_.head_dim},
          config_.qkv_bias);
  }

  // Adds the gate, v, q and k as columns of one tensor, which has the name of q's module.
  void AddGatedQkv(int32_t layer, BufferId in) {
    const std::string name =
        LayerPrefix(layer) + names_.projections[static_cast<int>(Projection::kQ)];
    const int64_t k = Width(in), all = 4 * Width(q_);
    int64_t first = 0;
    for (const BufferId out : {attention_gate_, v_, q_, k_}) {
      Add(LinearOp{.in = in,
                   .out = out,
                   .weight = {name, {k, all}, first},
                   .layout = MatrixLayout::kInOut,
                   .bias = {},
                   .bias_each = false,
                   .accumulate = false});
      first += Width(out);
    }
  }

  std::string GateNorm(int32_t layer) const {
    return LayerPrefix(layer) + names_.attention_gate_norm;
  }

  void AddFusedQkv(int32_t layer, BufferId q_in, BufferId kv_in) {
    const std::string module =
        LayerPrefix(layer) + names_.projections[static_cast<int>(Projection::kQ)];
    Outputs outputs = {.all = Width(q_) + Width(k_) + Width(v_), .first = 0};
    const bool by_head = names_.fused_qkv == FusedQkv::kByHead;
    if (by_head) {
      outputs.run = config_.head_dim;
      outputs.stride = 3 * config_.head_dim;
    }
    for (const BufferId out : {q_, k_, v_}) {
      Fused(out == q_ ? q_in : kv_in, out, module, outputs, config_.qkv_bias);
      outputs.first += by_head ? config_.head_dim : Width(out);
    }
  }

  // Returns the module of the norm of q or k.
  std::string QkNorm(int32_t layer, BufferId heads) const {
    return LayerPrefix(layer) + (heads == q_ ? names_.q_norm : names_.k_norm);
  }

  NormOp QkNormOf(BufferId heads, const std::string& module) const {
    const bool all = config_.qk_norm_weight == QkNormWeight::kAll;
    NormOp norm = NormOf(NormKind::kRms, heads, heads, module, "", config_.qk_norm_eps,
                         all ? Width(heads) : config_.head_dim, 1);
    if (config_.rope.neighbours && norm.weight.present()) {
      norm.weight.run = norm.weight.stride = 1;
      norm.weight.evens_first = config_.head_dim;
    }
    return norm;
  }

  // Multiplies rotated queries by the weights of both norms. Rotations keep the mean square of a
  // head, so the norms divide before. The weight of k multiplies q, because each score is a sum of
  // products of their features.
  void AddQueryWeights(int32_t layer) {
    for (const BufferId heads : {q_, k_}) {
      TensorPart weight = QkNormOf(heads, QkNorm(layer, heads)).weight;
      weight.run = config_.head_dim;  // the same for each head
      Add(MixOp{.a = q_, .b = kNoBuffer, .out = q_, .a_weight = std::move(weight), .b_weight = {}});
    }
  }

  void AddHeadwise(int32_t layer) {
    if (config_.qkv_silu) {
      for (const BufferId out : {q_, k_, v_}) {
        Add(ActivationOp{Activation::kSilu, out, kNoBuffer, out});
      }
    }
    if (config_.qk_norm) {
      const QkNormWeight weight = config_.qk_norm_weight;
      const bool plain = weight == QkNormWeight::kNone || weight == QkNormWeight::kRotated;
      for (const BufferId heads : {q_, k_}) {
        Add(QkNormOf(heads, plain ? std::string() : QkNorm(layer, heads)));
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
    BufferId in = config_.parallel_norms ? normed_too_ : residual_;
    if (order == NormOrder::kPre || order == NormOrder::kAround) {
      if (!config_.parallel_blocks) Norm(residual_, normed_, norm, NormScale(layer));
      if (!config_.parallel_norms) in = normed_;
    }
    if (order == NormOrder::kQuery) Norm(residual_, residual_, norm, NormScale(layer));
    if (config_.experts.in(layer)) {
      AddExperts(layer, in);
    } else {
      AddGateUp(layer, in);
      AddActivation(gate_, up_);
      AddBranch(layer, Projection::kDown, up_, config_.mlp_bias || config_.down_bias,
                names_.post_mlp_norm, "mlp_scale");
    }
    if (order == NormOrder::kPost) Norm(residual_, residual_, norm, NormScale(layer));
  }

  void AddActivation(BufferId gate, BufferId up) {
    Add(ActivationOp{.activation = config_.activation,
                     .in = config_.gated_mlp ? gate : up,
                     .up = config_.gated_mlp ? up : kNoBuffer,
                     .out = up});
  }

  void AddExperts(int32_t layer, BufferId in) {
    const ExpertsConfig& experts = config_.experts;
    LinearOp router = DenseOf(Width(in), experts.count, LayerPrefix(layer) + names_.experts.router,
                              /*bias=*/false);
    router.in = in;
    router.out = router_;
    router.routes = true;
    Add(std::move(router));
    Add(RouteOp{.logits = router_,
                .in = in,
                .out = expert_in_,
                .chosen = experts.chosen,
                .softmax = experts.softmax});
    if (config_.gated_mlp) Expert(layer, Projection::kGate, expert_in_, expert_gate_);
    Expert(layer, Projection::kUp, expert_in_, expert_up_);
    AddActivation(expert_gate_, expert_up_);
    Expert(layer, Projection::kDown, expert_up_, expert_out_);
    Add(CombineOp{.in = expert_out_,
                  .out = BranchOut(),
                  .chosen = experts.chosen,
                  .bias = experts.bias ? TensorPart{LayerPrefix(layer) + names_.experts.bias,
                                                    {config_.hidden_size}}
                                       : TensorPart{},
                  .accumulate = branch_ == kNoBuffer});
    EndBranch(layer, names_.post_mlp_norm, "mlp_scale");
  }

  void AddGateUp(int32_t layer, BufferId in) {
    if (names_.fused_gate_up != FusedGateUp::kNone) {
      const std::string module =
          LayerPrefix(layer) + names_.projections[static_cast<int>(Projection::kGate)];
      const int64_t width = config_.intermediate_size;
      const bool gate_first = names_.fused_gate_up == FusedGateUp::kGateFirst;
      Fused(in, gate_, module, {2 * width, gate_first ? 0 : width}, config_.mlp_bias);
      return Fused(in, up_, module, {2 * width, gate_first ? width : 0}, config_.mlp_bias);
    }
    if (config_.gated_mlp) Project(layer, Projection::kGate, in, gate_, config_.mlp_bias);
    if (!config_.gated_mlp && *names_.ungated_up != '\0') {
      return Dense(in, up_, LayerPrefix(layer) + names_.ungated_up, config_.mlp_bias, false);
    }
    Project(layer, Projection::kUp, in, up_, config_.mlp_bias);
  }

  void AddHead() {
    if (config_.head_transform) AddHeadTransform();
    TensorPart weight = {names_.head, {config_.vocab_size, config_.hidden_size}};
    if (config_.tie_word_embeddings) weight = Table(names_.embedding, config_.vocab_size);
    graph_.head_input = graph_.output;
    if (config_.logit_scale != 1) {
      graph_.head_input = AddBuffer("head_input", config_.hidden_size);
      Norm(residual_, graph_.head_input, prefix_ + names_.final_norm, config_.logit_scale);
    }
    Add(HeadOp{.in = graph_.head_input,
               .weight = std::move(weight),
               .bias = config_.head_bias ? TensorPart{names_.head_bias, {config_.vocab_size}}
                                         : TensorPart{},
               .soft_cap = config_.logit_soft_cap});
  }

  // Adds the transform of a masked language model before its head.
  void AddHeadTransform() {
    const BufferId out = AddBuffer("transformed", config_.hidden_size);
    Dense(graph_.output, out, names_.head_dense, config_.head_transform_bias, false);
    Add(ActivationOp{config_.head_activation, out, kNoBuffer, out});
    Norm(out, out, names_.head_norm);
    graph_.output = out;
  }

  BufferId residual_, normed_;
  BufferId embedding_;  // of tokens, their types and positions; the residual unless it is projected
  BufferId q_ = kNoBuffer, k_ = kNoBuffer, v_ = kNoBuffer, exchanged_ = kNoBuffer;
  BufferId up_ = kNoBuffer, gate_ = kNoBuffer, attention_gate_ = kNoBuffer, branch_ = kNoBuffer,
           embedded_ = kNoBuffer, normed_too_ = kNoBuffer;
  BufferId router_ = kNoBuffer, expert_in_ = kNoBuffer, expert_gate_ = kNoBuffer,
           expert_up_ = kNoBuffer, expert_out_ = kNoBuffer;
  std::vector<BufferId> skips_;
};

}  // namespace

BufferId WrittenBuffer(const GraphOp& op) {
  return std::visit(
      []<typename Op>(const Op& each) {
        if constexpr (std::is_same_v<Op, RopeStoreOp>) {
          return each.q;
        } else if constexpr (std::is_same_v<Op, HeadOp>) {
          return kNoBuffer;
        } else {
          return each.out;
        }
      },
      op);
}

Graph BuildGraph(const ModelConfig& config, const TensorSpelling& spelling) {
  return Builder(config, spelling).Build();
}

}  // namespace sluice
