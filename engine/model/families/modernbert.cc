// ModernBERT: an encoder with windows in most layers, two bases of rotary positions and a gated
// MLP. The norm after the embedding is the first layer's norm.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kModernBertArchitectures[] = {
    {"ModernBertForMaskedLM", "modernbert", OutputKind::kTokens},
    {"ModernBertForSequenceClassification", "modernbert", OutputKind::kScores},
    {"ModernBertForTokenClassification", "modernbert", OutputKind::kTokenScores},
    {"ModernBertForQuestionAnswering", "modernbert", OutputKind::kAnswers},
    {"ModernBertModel", "modernbert", OutputKind::kStates},
};
// position_embedding_type has no effect: positions are always rotary.
constexpr std::string_view kModernBertKeys[] = {"layer_types", "position_embedding_type"};

void ReadHeads(ObjectReader& root, ModelConfig& config) {
  config.head_transform = true;
  config.head_transform_bias = root.Boolean("classifier_bias", false);
  config.head_activation = ReadActivation(root, "classifier_activation", "gelu");
  config.head_bias = root.Boolean("decoder_bias", true);
  ClassifierConfig& classifier = config.serving.classifier;
  classifier.pooling =
      root.Choice("classifier_pooling", {"cls", "mean"}) == 0 ? Pooling::kCls : Pooling::kMean;
  classifier.pooler = true;
  classifier.activation = config.head_activation == Activation::kRelu ? PoolerActivation::kRelu
                                                                      : PoolerActivation::kGelu;
  const bool supported =
      config.head_activation == Activation::kGelu || config.head_activation == Activation::kRelu;
  classifier.supported = supported;
  if (!supported && config.architecture.ends_with("Classification")) {
    root.Fail("classifier_activation", "is not supported, must be \"gelu\" or \"relu\"");
  }
  classifier.pooler_module = "head.dense";
  classifier.pooler_bias = config.head_transform_bias;
  classifier.norm_module = "head.norm";
  config.serving.token_classifier = classifier;
}

void ReadModernBert(ObjectReader& root, ModelConfig& config) {
  ReadSizes(root, config, {});
  config.causal = false;
  config.norm = {.kind = NormKind::kLayer,
                 .eps = ReadEps(root, "norm_eps", 1e-5),
                 .bias = root.Boolean("norm_bias", false),
                 .embedding = true,
                 .first = false};
  config.activation = ReadActivation(root, "hidden_activation", "gelu");
  config.qkv_bias = config.output_bias = root.Boolean("attention_bias", false);
  config.mlp_bias = root.Boolean("mlp_bias", false);
  config.tie_word_embeddings = root.Boolean("tie_word_embeddings", true);
  const int64_t every = root.Integer("global_attn_every_n_layers", 1, kMaxLayers, 3);
  ReadLayerTypes(root, config, [every](int64_t layer) { return layer % every != 0; });
  config.window = root.Integer("local_attention", 2, kMaxModelPositions, 128) / 2 + 1;
  ReadRope(root, config, {.theta_key = "global_rope_theta", .theta = 160000});
  ReadLocalRope(root, config, {.theta_key = "local_rope_theta", .scaled = true});
  ReadHeads(root, config);
}

}  // namespace

const ModelFamily kModernBertFamily = {
    .title = "ModernBERT",
    .architectures = kModernBertArchitectures,
    .names =
        {
            .prefix = "model.",
            .embedding = "embeddings.tok_embeddings",
            .embedding_norm = "embeddings.norm",
            .layer = "layers.",
            .projections = {"attn.Wqkv", "attn.Wqkv", "attn.Wqkv", "attn.Wo", "mlp.Wi", "mlp.Wi",
                            "mlp.Wo"},
            .fused_qkv = FusedQkv::kInTurn,
            .fused_gate_up = FusedGateUp::kGateFirst,
            .attention_norm = "attn_norm",
            .mlp_norm = "mlp_norm",
            .final_norm = "final_norm",
            .head_dense = "head.dense",
            .head_norm = "head.norm",
            .head = "decoder.weight",
            .head_bias = "decoder.bias",
        },
    .read = ReadModernBert,
    .own_keys = kModernBertKeys,
};

}  // namespace sluice
