// The encoder of T5: RMS norms, scores without a scale, and a table of relative positions that all
// layers add.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kT5Architectures[] = {
    {"T5ForTokenClassification", "t5", OutputKind::kTokenScores},
    {"T5EncoderModel", "t5", OutputKind::kStates},
};
constexpr std::string_view kT5Keys[] = {"is_encoder_decoder"};

// The files do not limit the length of sequences; n_positions is the length in training.
constexpr int64_t kT5Positions = 512;

void ReadT5(ObjectReader& root, ModelConfig& config) {
  ReadSizes(root, config,
            {.hidden = "d_model",
             .intermediate = "d_ff",
             .layers = "num_layers",
             .heads = "num_heads",
             .positions = "n_positions",
             .head_dim = "d_kv",
             .fallback_positions = kT5Positions});
  config.causal = false;
  config.positions = PositionKind::kNone;
  config.norm.eps = ReadEps(root, "layer_norm_epsilon", 1e-6);
  config.score_scale = 1;
  ReadRelativeBias(root, "relative_attention_num_buckets", "relative_attention_max_distance",
                   config);
  const int kind = root.Choice("feed_forward_proj",
                               {"relu", "gated-gelu", "gated-relu", "gated-silu", "gelu", "silu"});
  config.gated_mlp = kind >= 1 && kind <= 3;
  // "gated-gelu" means the approximation.
  constexpr Activation kActivations[] = {Activation::kRelu, Activation::kGeluTanh,
                                         Activation::kRelu, Activation::kSilu,
                                         Activation::kGelu, Activation::kSilu};
  config.activation = kActivations[kind];
}

}  // namespace

const ModelFamily kT5Family = {
    .title = "T5 (encoder)",
    .architectures = kT5Architectures,
    .names =
        {
            .prefix = "transformer.",
            .embedding = "shared",
            .embedding_copy = "encoder.embed_tokens",
            .layer = "encoder.block.",
            .projections = {"layer.0.SelfAttention.q", "layer.0.SelfAttention.k",
                            "layer.0.SelfAttention.v", "layer.0.SelfAttention.o",
                            "layer.1.DenseReluDense.wi_0", "layer.1.DenseReluDense.wi_1",
                            "layer.1.DenseReluDense.wo"},
            .ungated_up = "layer.1.DenseReluDense.wi",
            .attention_norm = "layer.0.layer_norm",
            .mlp_norm = "layer.1.layer_norm",
            .final_norm = "encoder.final_layer_norm",
            .relative_bias = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
        },
    .read = ReadT5,
    .own_keys = kT5Keys,
};

}  // namespace sluice
