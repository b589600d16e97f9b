// StableLM: Llama with layer norms and rotary positions for a part of a head.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kStableLmArchitectures[] = {
    {"StableLmForCausalLM", "stablelm", OutputKind::kTokens},
    {"StableLmForSequenceClassification", "stablelm", OutputKind::kScores},
    {"StableLmForTokenClassification", "stablelm", OutputKind::kTokenScores},
    {"StableLmModel", "stablelm", OutputKind::kStates},
};
constexpr std::string_view kStableLmKeys[] = {"partial_rotary_factor"};

void ReadStableLm(ObjectReader& root, ModelConfig& config) {
  ReadLlamaSizes(root, config, {.kv_heads = 32});
  config.norm = {
      .kind = NormKind::kLayer, .eps = ReadEps(root, "layer_norm_eps", 1e-5), .bias = true};
  config.activation = ReadActivation(root, "hidden_act", "silu");
  config.qkv_bias = root.Boolean("use_qkv_bias", false);
  config.parallel_blocks = root.Boolean("use_parallel_residual", false);
  if (root.Boolean("qk_layernorm", false)) {
    root.Fail("qk_layernorm", "is not supported, must be false");
  }
  ReadRope(root, config, {.part_key = "partial_rotary_factor", .part = 0.25});
}

}  // namespace

const ModelFamily kStableLmFamily = {
    .title = "StableLM",
    .architectures = kStableLmArchitectures,
    .names = LlamaNames(),
    .read = ReadStableLm,
    .own_keys = kStableLmKeys,
};

}  // namespace sluice
