#include "engine/model/tensor_names.h"

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr TensorNames kLlamaNames = {
    .prefix = "model.",
    .embedding = "embed_tokens",
    .positions = "embed_positions",
    .token_types = "embed_token_types",
    .embedding_norm = "embed_norm",
    .layer = "layers.",
    .projections = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                    "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"},
    .fused_qkv = false,
    .in_out = false,
    .attention_norm = "input_layernorm",
    .mlp_norm = "post_attention_layernorm",
    .final_norm = "norm",
    .head = "lm_head.weight",
    .head_bias = "lm_head.bias",
};

constexpr TensorNames kGpt2Names = {
    .prefix = "transformer.",
    .embedding = "wte",
    .positions = "wpe",
    .token_types = "",
    .embedding_norm = "",
    .layer = "h.",
    .projections = {"attn.c_attn", "attn.c_attn", "attn.c_attn", "attn.c_proj", "", "mlp.c_fc",
                    "mlp.c_proj"},
    .fused_qkv = true,
    .in_out = true,
    .attention_norm = "ln_1",
    .mlp_norm = "ln_2",
    .final_norm = "ln_f",
    .head = "lm_head.weight",
    .head_bias = "",
};

constexpr TensorNames kBertNames = {
    .prefix = "bert.",
    .embedding = "embeddings.word_embeddings",
    .positions = "embeddings.position_embeddings",
    .token_types = "embeddings.token_type_embeddings",
    .embedding_norm = "embeddings.LayerNorm",
    .layer = "encoder.layer.",
    .projections = {"attention.self.query", "attention.self.key", "attention.self.value",
                    "attention.output.dense", "", "intermediate.dense", "output.dense"},
    .fused_qkv = false,
    .in_out = false,
    .attention_norm = "attention.output.LayerNorm",
    .mlp_norm = "output.LayerNorm",
    .final_norm = "",
    .head = "cls.predictions.decoder.weight",
    .head_bias = "cls.predictions.bias",
};

}  // namespace

const TensorNames& NamesOf(Family family) {
  switch (family) {
    case Family::kGpt2:
      return kGpt2Names;
    case Family::kBert:
      return kBertNames;
    case Family::kLlama:
    case Family::kQwen2:
    case Family::kSluice:
      break;
  }
  return kLlamaNames;
}

TensorSpelling FindSpelling(Family family, const std::function<bool(const std::string&)>& has) {
  const TensorNames& names = NamesOf(family);
  const std::string embedding = absl::StrCat(names.embedding, ".weight");
  TensorSpelling spelling;
  spelling.without_prefix = has(embedding) && !has(names.prefix + embedding);
  const std::string norm =
      absl::StrCat(spelling.without_prefix ? "" : names.prefix, names.embedding_norm, ".gamma");
  spelling.gamma_beta = family == Family::kBert && has(norm);
  return spelling;
}

}  // namespace sluice
