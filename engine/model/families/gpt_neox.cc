// GPT-NeoX and Pythia: attention and MLP in parallel with a norm for each, and rotary positions for
// a part of a head.
#include "absl/strings/str_cat.h"
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kGptNeoXArchitectures[] = {
    {"GPTNeoXForCausalLM", "gpt_neox", OutputKind::kTokens},
    {"GPTNeoXModel", "gpt_neox", OutputKind::kStates},
};
constexpr std::string_view kGptNeoXKeys[] = {"partial_rotary_factor"};
// The defaults of rotary_emb_base and rotary_pct.
constexpr double kUsualBase = 10000, kUsualPart = 0.25;

// Before version 5, transformers saved the base and the rotated part under two keys each. Each of
// the second keys must have the value of the first.
void CheckSecondKeys(ObjectReader& root, const ModelConfig& config) {
  const auto refuse = [&root](const char* key, double value, const char* first, double usual) {
    root.Fail(key, absl::StrCat("is ", value, ", which differs from ", first, " (", usual,
                                " if absent); set both to the same value"));
  };
  const double theta = root.Number("rope_theta", 0, 1e12, config.rope.theta);
  if (theta != config.rope.theta) refuse("rope_theta", theta, "rotary_emb_base", kUsualBase);
  if (!root.Has("partial_rotary_factor")) return;
  const double part = root.Number("partial_rotary_factor", 0, 1);
  const auto dims = static_cast<int64_t>(static_cast<double>(config.head_dim) * part);
  if (dims != config.rope.dims) refuse("partial_rotary_factor", part, "rotary_pct", kUsualPart);
}

void ReadGptNeoX(ObjectReader& root, ModelConfig& config) {
  ReadSizes(root, config, {});
  SetClassic(config);
  config.positions = PositionKind::kRope;
  config.qkv_bias = config.output_bias = root.Boolean("attention_bias", true);
  config.norm.eps = ReadEps(root, "layer_norm_eps", 1e-5);
  config.activation = ReadActivation(root, "hidden_act", "gelu");
  config.parallel_blocks = config.parallel_norms = root.Boolean("use_parallel_residual", true);
  config.tie_word_embeddings = root.Boolean("tie_word_embeddings", false);
  ReadRope(root, config,
           {.theta_key = "rotary_emb_base",
            .theta = kUsualBase,
            .part_key = "rotary_pct",
            .part = kUsualPart});
  CheckSecondKeys(root, config);
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
    .own_keys = kGptNeoXKeys,
};

}  // namespace sluice
