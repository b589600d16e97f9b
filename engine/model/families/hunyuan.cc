// Hunyuan (dense): Llama with norms of q and k whose weights multiply the rotated features.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kHunyuanArchitectures[] = {
    {"HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", OutputKind::kTokens},
    {"HunYuanDenseV1ForSequenceClassification", "hunyuan_v1_dense", OutputKind::kScores},
    {"HunYuanDenseV1Model", "hunyuan_v1_dense", OutputKind::kStates},
};
constexpr std::string_view kHunyuanKeys[] = {"use_qk_norm"};

void ReadHunyuan(ObjectReader& root, ModelConfig& config) {
  ReadLlamaLike(root, config, {.kind = "dynamic"}, {.eps = 1e-5});
  config.qkv_bias = config.output_bias = root.Boolean("attention_bias", false);
  UseQkNorm(config, QkNormWeight::kRotated);
  if (!root.Boolean("use_qk_norm", true)) {
    root.Fail("use_qk_norm", "is not supported, must be true");
  }
}

constexpr TensorNames HunyuanNames() {
  TensorNames names = LlamaNames();
  names.q_norm = "self_attn.query_layernorm";
  names.k_norm = "self_attn.key_layernorm";
  return names;
}

}  // namespace

const ModelFamily kHunyuanFamily = {
    .title = "Hunyuan",
    .architectures = kHunyuanArchitectures,
    .names = HunyuanNames(),
    .read = ReadHunyuan,
    .own_keys = kHunyuanKeys,
};

}  // namespace sluice
