// StarCoder2: Llama with layer norms, biases and an MLP without gate.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kStarcoder2Architectures[] = {
    {"Starcoder2ForCausalLM", "starcoder2", OutputKind::kTokens},
    {"Starcoder2ForSequenceClassification", "starcoder2", OutputKind::kScores},
    {"Starcoder2ForTokenClassification", "starcoder2", OutputKind::kTokenScores},
    {"Starcoder2Model", "starcoder2", OutputKind::kStates},
};
constexpr std::string_view kStarcoder2Keys[] = {"sliding_window"};

void ReadStarcoder2(ObjectReader& root, ModelConfig& config) {
  ReadLlamaSizes(root, config, {.kv_heads = 2, .tied = true});
  config.norm = {
      .kind = NormKind::kLayer, .eps = ReadEps(root, "norm_epsilon", 1e-5), .bias = true};
  config.activation = ReadActivation(root, "hidden_act", "gelu_pytorch_tanh");
  config.gated_mlp = false;
  config.qkv_bias = config.output_bias = config.mlp_bias = root.Boolean("use_bias", true);
  ReadRope(root, config);
  ReadWindows(
      root, config, [](int64_t) { return true; }, /*absent=*/0);
}

constexpr TensorNames Starcoder2Names() {
  TensorNames names = LlamaNames();
  names.projections[5] = "mlp.c_fc";
  names.projections[6] = "mlp.c_proj";
  return names;
}

}  // namespace

const ModelFamily kStarcoder2Family = {
    .title = "StarCoder2",
    .architectures = kStarcoder2Architectures,
    .names = Starcoder2Names(),
    .read = ReadStarcoder2,
    .own_keys = kStarcoder2Keys,
};

}  // namespace sluice
