// GPT-2.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kGpt2Architectures[] = {
    {"GPT2LMHeadModel", "gpt2", OutputKind::kTokens},
    {"GPT2Model", "gpt2", OutputKind::kStates},
};

void ReadGpt2(ObjectReader& root, ModelConfig& config) {
  ReadSizes(root, config, kGpt2Sizes);
  SetClassic(config);
  config.norm.eps = ReadEps(root, "layer_norm_epsilon", 1e-5);
  config.activation = ReadActivation(root, "activation_function", "gelu_new");
  config.tie_word_embeddings = root.Boolean("tie_word_embeddings", true);
}

}  // namespace

const ModelFamily kGpt2Family = {
    .title = "GPT-2",
    .architectures = kGpt2Architectures,
    .names =
        {
            .prefix = "transformer.",
            .embedding = "wte",
            .positions = "wpe",
            .layer = "h.",
            .projections = {"attn.c_attn", "attn.c_attn", "attn.c_attn", "attn.c_proj", "",
                            "mlp.c_fc", "mlp.c_proj"},
            .fused_qkv = FusedQkv::kInTurn,
            .in_out = true,
            .attention_norm = "ln_1",
            .mlp_norm = "ln_2",
            .final_norm = "ln_f",
            .head = "lm_head.weight",
        },
    .read = ReadGpt2,
};

}  // namespace sluice
