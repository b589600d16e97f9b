// OPT: learned positions from row 2 on. The variant with norms after the branches (350m) is
// refused.
#include "absl/strings/str_cat.h"
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kOptArchitectures[] = {
    {"OPTForCausalLM", "opt", OutputKind::kTokens},
    {"OPTModel", "opt", OutputKind::kStates},
};

void ReadOpt(ObjectReader& root, ModelConfig& config) {
  ReadSizes(root, config, {.intermediate = "ffn_dim"});
  SetClassic(config);
  config.norm.eps = 1e-5f;
  config.position_offset = 2;
  config.position_rows = config.max_positions + config.position_offset;
  config.activation = ReadActivation(root, "activation_function", "relu");
  config.tie_word_embeddings = root.Boolean("tie_word_embeddings", true);
  const int64_t width = root.Integer("word_embed_proj_dim", 1, kMaxWidth, config.hidden_size);
  if (width != config.hidden_size) {
    root.Fail("word_embed_proj_dim",
              absl::StrCat("is ", width, ", must be hidden_size ", config.hidden_size));
  }
  for (const char* const key :
       {"do_layer_norm_before", "enable_bias", "layer_norm_elementwise_affine"}) {
    if (!root.Boolean(key, true)) root.Fail(key, "must be true");
  }
  if (root.Boolean("_remove_final_layer_norm", false)) {
    root.Fail("_remove_final_layer_norm", "must be false");
  }
}

}  // namespace

const ModelFamily kOptFamily = {
    .title = "OPT",
    .architectures = kOptArchitectures,
    .names =
        {
            .prefix = "model.decoder.",
            .embedding = "embed_tokens",
            .positions = "embed_positions",
            .layer = "layers.",
            .projections = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                            "self_attn.out_proj", "", "fc1", "fc2"},
            .attention_norm = "self_attn_layer_norm",
            .mlp_norm = "final_layer_norm",
            .final_norm = "final_layer_norm",
            .head = "lm_head.weight",
        },
    .read = ReadOpt,
};

}  // namespace sluice
