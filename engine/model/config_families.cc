#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/model/config_reader.h"

namespace sluice {
namespace {

constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr double kLeastEps = 1e-20;

int64_t WholeHeadDim(ObjectReader& root, const char* heads_key, const char* width_key,
                     const ModelConfig& config) {
  if (config.hidden_size % config.heads == 0) return config.hidden_size / config.heads;
  root.Fail(heads_key, absl::StrCat("is ", config.heads, ", must divide ", width_key, " ",
                                    config.hidden_size, " when head_dim is absent"));
  return 1;
}

void ReadHeads(ObjectReader& root, ModelConfig& config) {
  config.heads = root.Integer("num_attention_heads", 1, kMaxHeads);
  config.kv_heads = root.Integer("num_key_value_heads", 1, kMaxHeads, config.heads);
  if (config.heads % config.kv_heads != 0) {
    root.Fail("num_key_value_heads", absl::StrCat("is ", config.kv_heads, ", must divide the ",
                                                  config.heads, " num_attention_heads"));
  }
  config.head_dim = root.Has("head_dim")
                        ? root.Integer("head_dim", 1, kMaxHeadDim)
                        : WholeHeadDim(root, "num_attention_heads", "hidden_size", config);
  CheckHeads(root, "num_attention_heads", config);
}

Activation ReadActivation(ObjectReader& root, const char* key, const char* usual) {
  // The first one is the default.
  const Activation activations[] = {
      std::string(usual) == "gelu_new" ? Activation::kGeluTanh : Activation::kGelu,
      Activation::kGelu,
      Activation::kGeluTanh,
      Activation::kGeluTanh,
      Activation::kGeluTanh,
      Activation::kRelu,
      Activation::kSquaredRelu,
      Activation::kSilu,
      Activation::kSilu};
  return activations[root.Choice(key, {usual, "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast",
                                       "relu", "relu2", "silu", "swish"})];
}

// Sets what GPT-2 and BERT share: LayerNorm with weight and bias, a plain MLP, biases everywhere.
void SetClassic(ModelConfig& config) {
  config.kv_heads = config.heads;
  config.positions = PositionKind::kLearned;
  config.position_rows = config.max_positions;
  config.norm.kind = NormKind::kLayer;
  config.norm.bias = true;
  config.gated_mlp = false;
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
}

}  // namespace

void CheckHeads(ObjectReader& root, const char* heads_key, const ModelConfig& config) {
  if (config.head_dim > kMaxHeadDim) {
    root.Fail("head_dim", absl::StrCat("is ", config.head_dim, ", must be at most ", kMaxHeadDim));
  }
  if (config.heads * config.head_dim > kMaxWidth) {
    root.Fail(heads_key, absl::StrCat("times head_dim is ", config.heads * config.head_dim,
                                      ", must be at most ", kMaxWidth));
  }
}

void ReadLlamaSizes(ObjectReader& root, ModelConfig& config) {
  config.vocab_size = root.Integer("vocab_size", 1, kMaxVocab);
  config.hidden_size = root.Integer("hidden_size", 1, kMaxWidth);
  config.intermediate_size = root.Integer("intermediate_size", 1, 4 * kMaxWidth);
  config.layers = root.Integer("num_hidden_layers", 1, kMaxLayers);
  config.max_positions = root.Integer("max_position_embeddings", 1, kMaxModelPositions);
  config.tie_word_embeddings = root.Boolean("tie_word_embeddings", false);
  ReadHeads(root, config);
}

// Published checkpoints have `rope_theta` and `rope_scaling`; newer versions of transformers write
// both into `rope_parameters`.
void ReadRope(ObjectReader& root, RopeConfig& rope) {
  if (root.Has("rope_scaling") && root.Has("rope_parameters")) {
    root.Fail("rope_scaling", "and rope_parameters exclude each other");
  }
  ObjectReader scaling =
      root.Object(root.Has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  constexpr double kMaxTheta = 1e12;
  rope.theta = root.Number("rope_theta", 1.0, kMaxTheta, 10000.0);
  rope.theta = scaling.Number("rope_theta", 1.0, kMaxTheta, rope.theta);
  scaling.Number("partial_rotary_factor", 1.0, 1.0, 1.0);
  const char* type = scaling.Has("rope_type") ? "rope_type" : "type";
  if (scaling.Choice(type, {"default", "llama3"}) == 0) return;
  RopeConfig::Llama3& llama3 = rope.llama3.emplace();
  llama3.factor = scaling.Number("factor", 1.0, 1e6);
  llama3.low_freq_factor = scaling.Number("low_freq_factor", 1e-6, 1e6);
  llama3.high_freq_factor = scaling.Number("high_freq_factor", 1e-6, 1e6);
  llama3.original_max_positions =
      scaling.Integer("original_max_position_embeddings", 1, kMaxModelPositions);
  if (llama3.high_freq_factor <= llama3.low_freq_factor) {
    scaling.Fail("high_freq_factor", "must be above low_freq_factor");
  }
}

void ReadLlama(ObjectReader& root, ModelConfig& config) {
  ReadLlamaSizes(root, config);
  root.Choice("hidden_act", {"silu"});
  config.norm.eps = static_cast<float>(root.Number("rms_norm_eps", kLeastEps, 1.0, 1e-6));
  config.qkv_bias = config.output_bias = root.Boolean("attention_bias", false);
  config.mlp_bias = root.Boolean("mlp_bias", false);
  ReadRope(root, config.rope);
}

void ReadQwen2(ObjectReader& root, ModelConfig& config) {
  ReadLlamaSizes(root, config);
  root.Choice("hidden_act", {"silu"});
  config.norm.eps = static_cast<float>(root.Number("rms_norm_eps", kLeastEps, 1.0, 1e-6));
  config.qkv_bias = true;
  ReadRope(root, config.rope);
}

void ReadGpt2(ObjectReader& root, ModelConfig& config) {
  config.vocab_size = root.Integer("vocab_size", 1, kMaxVocab);
  config.hidden_size = root.Integer("n_embd", 1, kMaxWidth);
  config.layers = root.Integer("n_layer", 1, kMaxLayers);
  config.heads = root.Integer("n_head", 1, kMaxHeads);
  config.max_positions = root.Integer("n_positions", 1, kMaxModelPositions);
  config.intermediate_size = root.Integer("n_inner", 1, 4 * kMaxWidth, 4 * config.hidden_size);
  SetClassic(config);
  config.head_dim = WholeHeadDim(root, "n_head", "n_embd", config);
  CheckHeads(root, "n_head", config);
  config.norm.eps = static_cast<float>(root.Number("layer_norm_epsilon", kLeastEps, 1.0, 1e-5));
  config.activation = ReadActivation(root, "activation_function", "gelu_new");
  config.tie_word_embeddings = root.Boolean("tie_word_embeddings", true);
}

void ReadBert(ObjectReader& root, ModelConfig& config) {
  ReadLlamaSizes(root, config);
  SetClassic(config);
  config.norm.order = NormOrder::kPost;
  config.norm.embedding = true;
  config.norm.final = false;
  config.norm.eps = static_cast<float>(root.Number("layer_norm_eps", kLeastEps, 1.0, 1e-12));
  config.activation = ReadActivation(root, "hidden_act", "gelu");
  config.token_types = root.Integer("type_vocab_size", 1, kMaxWidth, 2);
  config.tie_word_embeddings = root.Boolean("tie_word_embeddings", true);
  config.causal = false;
  config.head_bias = true;
}

}  // namespace sluice
