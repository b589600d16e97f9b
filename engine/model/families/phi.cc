// Phi-1, Phi-1.5 and Phi-2: attention and MLP in parallel after one norm, and rotary positions for
// a part of a head.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kPhiArchitectures[] = {
    {"PhiForCausalLM", "phi", OutputKind::kTokens},
    {"PhiForSequenceClassification", "phi", OutputKind::kScores},
    {"PhiForTokenClassification", "phi", OutputKind::kTokenScores},
    {"PhiModel", "phi", OutputKind::kStates},
};
constexpr std::string_view kPhiKeys[] = {"partial_rotary_factor"};

void ReadPhi(ObjectReader& root, ModelConfig& config) {
  ReadLlamaSizes(root, config);
  config.norm = {
      .kind = NormKind::kLayer, .eps = ReadEps(root, "layer_norm_eps", 1e-5), .bias = true};
  config.activation = ReadActivation(root, "hidden_act", "gelu_new");
  config.gated_mlp = false;
  config.qkv_bias = config.output_bias = config.mlp_bias = config.head_bias = true;
  config.parallel_blocks = true;
  if (root.Boolean("qk_layernorm", false)) {
    root.Fail("qk_layernorm", "is not supported, must be false");
  }
  ReadRope(root, config, {.part_key = "partial_rotary_factor", .part = 0.5});
}

constexpr TensorNames PhiNames() {
  TensorNames names = LlamaNames();
  names.projections[3] = "self_attn.dense";
  names.projections[5] = "mlp.fc1";
  names.projections[6] = "mlp.fc2";
  names.final_norm = "final_layernorm";
  names.head_bias = "lm_head.bias";
  return names;
}

}  // namespace

const ModelFamily kPhiFamily = {
    .title = "Phi (1 to 2)",
    .architectures = kPhiArchitectures,
    .names = PhiNames(),
    .read = ReadPhi,
    .own_keys = kPhiKeys,
};

}  // namespace sluice
