// Llama, and Sluice's explicit architecture, which has its names.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kLlamaArchitectures[] = {
    {"LlamaForCausalLM", "llama", OutputKind::kTokens},
    {"LlamaForSequenceClassification", "llama", OutputKind::kScores},
    {"LlamaForTokenClassification", "llama", OutputKind::kTokenScores},
    {"LlamaModel", "llama", OutputKind::kStates},
    {"LlamaBidirectionalModel", "llama_bidirec", OutputKind::kStates},
    {"LlamaBidirectionalForSequenceClassification", "llama_bidirec", OutputKind::kScores},
};
constexpr Architecture kSluiceArchitectures[] = {
    {"SluiceForCausalLM", "sluice", OutputKind::kTokens},
    {"SluiceModel", "sluice", OutputKind::kStates},
};

void ReadLlama(ObjectReader& root, ModelConfig& config) {
  ReadLlamaLike(root, config);
  config.qkv_bias = config.output_bias = root.Boolean("attention_bias", false);
  config.mlp_bias = root.Boolean("mlp_bias", false);
  if (!config.architecture.starts_with("LlamaBidirectional")) return;
  config.causal = false;
  if (root.Choice("pooling", {"avg", "cls", "last"}) != 0) {
    root.Fail("pooling", "is not supported, must be \"avg\"");
  }
  config.serving.classifier.pooling = Pooling::kMean;
  const double temperature = root.Number("temperature", 1e-6, 1e6, 1);
  config.serving.classifier.supported = temperature == 1;
  if (temperature != 1 && config.architecture.ends_with("Classification")) {
    root.Fail("temperature", "is not supported, must be 1");
  }
}

// The object "sluice" has the other keys.
void ReadSizesOnly(ObjectReader& root, ModelConfig& config) { ReadLlamaSizes(root, config); }

constexpr TensorNames SluiceNames() {
  TensorNames names = PostNormNames();
  names.mlp_norm = LlamaNames().mlp_norm;
  names.post_attention_norm = "attention_norm_behind";
  names.post_mlp_norm = "mlp_norm_behind";
  names.token_types = "embed_token_types";
  names.embedding_projection = "embed_projection";
  names.relative_bias = "relative_attention_bias";
  names.relative_table = "relative_positions";
  names.relative_norm = "relative_norm";
  names.relative_q = "self_attn.relative_q_proj";
  names.relative_k = "self_attn.relative_k_proj";
  names.experts = EachExpert("mlp.router", "mlp.experts.", "gate_proj", "up_proj", "down_proj");
  names.experts.bias = "mlp.experts.bias";
  names.attention_gate = "self_attn.gate_proj";
  names.attention_gate_norm = "self_attn.gate_norm";
  names.head_bias = "lm_head.bias";
  return names;
}

}  // namespace

const ModelFamily kLlamaFamily = {
    .title = "Llama",
    .architectures = kLlamaArchitectures,
    .names = LlamaNames(),
    .read = ReadLlama,
    .takes_extensions = true,
};

const ModelFamily kSluiceFamily = {
    .title = "the explicit architecture",
    .architectures = kSluiceArchitectures,
    .names = SluiceNames(),
    .read = ReadSizesOnly,
    .takes_extensions = true,
    .explicit_keys = true,
};

}  // namespace sluice
