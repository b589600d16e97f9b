// NomicBERT and GTE (v1.5): BERT with rotary positions and a gated MLP, or with a plain MLP that
// experts replace in every second layer (nomic-embed-text-v2-moe). Both under the keys of
// transformers and under the published ones, which code on the hub reads.
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kNomicBertArchitectures[] = {
    {"NomicBertForMaskedLM", "nomic_bert", OutputKind::kTokens},
    {"NomicBertForTokenClassification", "nomic_bert", OutputKind::kTokenScores},
    {"NomicBertModel", "nomic_bert", OutputKind::kStates},
};
constexpr std::string_view kNomicBertKeys[] = {"num_experts"};
constexpr std::string_view kNomicBertIdleKeys[] = {"attn_pdrop",
                                                   "dense_seq_output",
                                                   "embd_pdrop",
                                                   "ffn_div",
                                                   "fused_bias_fc",
                                                   "fused_dropout_add_ln",
                                                   "last_layer_subset",
                                                   "max_trained_positions",
                                                   "moe_impl",
                                                   "moe_resid_pdrop",
                                                   "pad_vocab_size_multiple",
                                                   "reorder_and_upcast_attn",
                                                   "resid_pdrop",
                                                   "router_aux_loss_coef",
                                                   "scale_attn_by_inverse_layer_idx",
                                                   "scale_attn_weights",
                                                   "summary_activation",
                                                   "summary_first_dropout",
                                                   "summary_proj_to_labels",
                                                   "summary_type",
                                                   "summary_use_proj",
                                                   "use_flash_attn",
                                                   "use_xentropy"};
constexpr Architecture kNewArchitectures[] = {
    {"NewForMaskedLM", "new", OutputKind::kTokens},
    {"NewForSequenceClassification", "new", OutputKind::kScores},
    {"NewForTokenClassification", "new", OutputKind::kTokenScores},
    {"NewForQuestionAnswering", "new", OutputKind::kAnswers},
    {"NewModel", "new", OutputKind::kStates},
};
constexpr std::string_view kGteKeys[] = {"position_embedding_type"};
constexpr std::string_view kGteIdleKeys[] = {"attention_probs_dropout_prob",
                                             "classifier_dropout",
                                             "hidden_dropout_prob",
                                             "initializer_range",
                                             "unpad_inputs",
                                             "use_memory_efficient_attention"};
constexpr Architecture kGteArchitectures[] = {
    {"GteForMaskedLM", "gte", OutputKind::kTokens},
    {"GteForSequenceClassification", "gte", OutputKind::kScores},
    {"GteForTokenClassification", "gte", OutputKind::kTokenScores},
    {"GteModel", "gte", OutputKind::kStates},
};

void ReadRotatedBert(ObjectReader& root, ModelConfig& config, double theta, int64_t types) {
  ReadBertLike(root, config);
  config.positions = PositionKind::kRope;
  config.gated_mlp = true;
  config.token_types = root.Integer("type_vocab_size", 0, kMaxWidth, types);
  ReadRope(root, config, {.theta = theta, .kind = "ntk"});
}

// Refuses a key unless it has its only supported value, which is also the default.
void RequireFlag(ObjectReader& root, const char* key, bool value) {
  if (root.Boolean(key, value) != value) {
    root.Fail(key, absl::StrCat("is not supported, must be ", value ? "true" : "false"));
  }
}

// Reads the experts of published models: in each n-th layer, from the second on.
void ReadNomicExperts(ObjectReader& root, ModelConfig& config) {
  const int64_t every = root.Integer("moe_every_n_layers", 0, kMaxLayers, 0);
  for (const char* const key : {"expert_choice_router", "moe_normalize_expert_weights"}) {
    RequireFlag(root, key, false);
  }
  if (root.Integer("num_shared_experts", 0, kMaxWidth, 0) != 0) {
    root.Fail("num_shared_experts", "is not supported, must be 0");
  }
  if (root.Integer("num_experts", 0, kMaxWidth, 0) == 0 || every < 2 || config.layers < 2) {
    return;
  }
  ReadExperts(root, config, {.count_key = "num_experts", .chosen_key = "moe_top_k"});
  config.experts.bias = true;
  for (int64_t layer = 0; layer < std::ssize(config.experts.layers); ++layer) {
    config.experts.layers[layer] = layer % every == 1;
  }
  if (config.gated_mlp) {
    root.Fail("activation_function", "must be \"gelu\" in a model with experts");
  }
}

// Reads the published keys of NomicBERT, which are those of GPT-2.
void ReadPublishedNomicBert(ObjectReader& root, ModelConfig& config) {
  ReadSizes(root, config, kGpt2Sizes);
  SetBertLike(config);
  config.positions = PositionKind::kRope;
  config.norm.eps = ReadEps(root, "layer_norm_epsilon", 1e-5);
  const int kind = root.Choice("activation_function", {"swiglu", "geglu", "glu", "gelu"});
  if (kind == 2) {
    root.Fail("activation_function", "is not supported, must be \"swiglu\", \"geglu\" or \"gelu\"");
  }
  config.activation = kind == 0 ? Activation::kSilu : Activation::kGelu;
  config.head_activation = config.activation;
  config.gated_mlp = kind < 2;
  config.qkv_bias = config.output_bias = root.Boolean("qkv_proj_bias", true);
  config.mlp_bias = root.Boolean("mlp_fc1_bias", true);
  config.down_bias = root.Boolean("mlp_fc2_bias", true);
  if (config.mlp_bias && !config.down_bias) root.Fail("mlp_fc2_bias", "must be true");
  config.token_types = root.Integer("type_vocab_size", 0, kMaxWidth, 2);
  config.tie_word_embeddings = root.Boolean("tie_word_embeddings", true);
  for (const char* const key :
       {"causal", "parallel_block", "prenorm", "rotary_emb_interleaved", "use_rms_norm"}) {
    RequireFlag(root, key, false);
  }
  for (const char* const key : {"rotary_emb_scale_base", "rotary_scaling_factor"}) {
    if (root.Has(key)) root.Fail(key, "is not supported, must be null");
  }
  ReadNomicExperts(root, config);
  ReadRope(root, config,
           {.theta_key = "rotary_emb_base", .part_key = "rotary_emb_fraction", .part = 1});
}

void ReadNomicBert(ObjectReader& root, ModelConfig& config) {
  if (root.Has("n_embd")) return ReadPublishedNomicBert(root, config);
  if (root.Integer("num_experts", 0, kMaxWidth, 0) != 0) {
    root.Fail("num_experts", "is not supported without the key n_embd, must be 0");
  }
  ReadRotatedBert(root, config, 1000, 2);
  config.activation = ReadActivation(root, "hidden_act", "silu");
  config.head_activation = config.activation;
  config.qkv_bias = config.output_bias = config.mlp_bias = false;
}

void ReadGte(ObjectReader& root, ModelConfig& config) {
  ReadRotatedBert(root, config, 160000, 1);
  config.mlp_bias = false;
  config.down_bias = true;
  RequireFlag(root, "pack_qkv", true);
  RequireFlag(root, "logn_attention_scale", false);
  RequireFlag(root, "logn_attention_clip1", false);
  for (const auto& [key, only] :
       {std::pair{"layer_norm_type", "layer_norm"}, std::pair{"position_embedding_type", "rope"}}) {
    root.Choice(key, {only});
  }
}

// The code on the hub has other defaults than the class in transformers.
void ReadNew(ObjectReader& root, ModelConfig& config) {
  ReadGte(root, config);
  if (!root.Has("rope_theta")) config.rope.theta = 10000;
}

constexpr TensorNames GteNames(const char* prefix) {
  return {
      .prefix = prefix,
      .embedding = "embeddings.word_embeddings",
      .token_types = "embeddings.token_type_embeddings",
      .embedding_norm = "embeddings.LayerNorm",
      .layer = "encoder.layer.",
      .projections = {"attention.qkv_proj", "attention.qkv_proj", "attention.qkv_proj",
                      "attention.o_proj", "mlp.up_gate_proj", "mlp.up_gate_proj", "mlp.down_proj"},
      .fused_qkv = FusedQkv::kInTurn,
      .fused_gate_up = FusedGateUp::kUpFirst,
      .attention_norm = "attn_ln",
      .mlp_norm = "mlp_ln",
      .head_dense = "lm_head.dense",
      .head_norm = "lm_head.norm",
      .head = "lm_head.decoder.weight",
      .head_bias = "lm_head.decoder.bias",
  };
}

}  // namespace

const ModelFamily kNomicBertFamily = {
    .title = "NomicBERT",
    .architectures = kNomicBertArchitectures,
    .names =
        {
            .prefix = "nomic_bert.",
            .embedding = "embeddings.word_embeddings",
            .token_types = "embeddings.token_type_embeddings",
            .embedding_norm = "emb_ln",
            .layer = "encoder.layers.",
            .projections = {"attn.Wqkv", "attn.Wqkv", "attn.Wqkv", "attn.out_proj", "mlp.fc12",
                            "mlp.fc11", "mlp.fc2"},
            .ungated_up = "mlp.fc1",
            .fused_qkv = FusedQkv::kInTurn,
            .experts = {.router = "mlp.router.layer",
                        .tensors = ExpertTensors::kFlat,
                        .up = "mlp.experts.mlp.w1",
                        .down = "mlp.experts.mlp.w2",
                        .bias = "mlp.experts.bias"},
            .attention_norm = "norm1",
            .mlp_norm = "norm2",
            .head_dense = "cls.predictions.transform.dense",
            .head_norm = "cls.predictions.transform.layer_norm",
            .head = "cls.predictions.decoder.weight",
            .head_bias = "cls.predictions.bias",
        },
    .read = ReadNomicBert,
    .own_keys = kNomicBertKeys,
    .idle_keys = kNomicBertIdleKeys,
};

const ModelFamily kGteFamily = {
    .title = "GTE",
    .architectures = kGteArchitectures,
    .names = GteNames("gte."),
    .read = ReadGte,
    .own_keys = kGteKeys,
    .idle_keys = kGteIdleKeys,
};

const ModelFamily kNewFamily = {
    .title = "GTE, as published",
    .architectures = kNewArchitectures,
    .names = GteNames("new."),
    .read = ReadNew,
    .own_keys = kGteKeys,
    .idle_keys = kGteIdleKeys,
};

}  // namespace sluice
