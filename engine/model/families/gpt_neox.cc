// GPT-NeoX and Pythia: attention and MLP in parallel with a norm for each, and rotary positions for
// a part of a head.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kGptNeoXArchitectures[] = {
    {"GPTNeoXForCausalLM", "gpt_neox", OutputKind::kTokens},
    {"GPTNeoXModel", "gpt_neox", OutputKind::kStates},
};

void ReadGptNeoX(ObjectReader& root, ModelConfig& config) {
  ReadSizes(root, config, {});
  SetClassic(config);
  config.positions = PositionKind::kRope;
  config.qkv_bias = config.output_bias = root.Boolean("attention_bias", true);
  config.norm.eps = ReadEps(root, "layer_norm_eps", 1e-5);
  config.activation = ReadActivation(root, "hidden_act", "gelu");
  config.parallel_blocks = config.parallel_norms = root.Boolean("use_parallel_residual", true);
  config.tie_word_embeddings = root.Boolean("tie_word_embeddings", false);
  ReadRope(root, config, {.theta_key = "rotary_emb_base", .part_key = "rotary_pct", .part = 0.25});
}

}  // namespace

const ModelFamily kGptNeoXFamily = {
    .title = "GPT-NeoX",
    .architectures = kGptNeoXArchitectures,
    .names =
        {
            .prefix = "gpt_neox.",
            .embedding = "embed_in",
            .layer = "layers.",
            .projections = {"attention.query_key_value", "attention.query_key_value",
                            "attention.query_key_value", "attention.dense", "", "mlp.dense_h_to_4h",
                            "mlp.dense_4h_to_h"},
            .fused_qkv = FusedQkv::kByHead,
            .attention_norm = "input_layernorm",
            .mlp_norm = "post_attention_layernorm",
            .final_norm = "final_layer_norm",
            .head = "embed_out.weight",
        },
    .read = ReadGptNeoX,
};

}  // namespace sluice
