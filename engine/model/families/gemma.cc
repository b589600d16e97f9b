// Gemma 1 to 3, for text: a scaled embedding and norms with 1 + weight. Gemma 2 has norms before
// and after attention and MLP, windows in some layers and soft caps. Gemma 3 has norms of q and k
// and two bases of rotary positions.
#include <cmath>

#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kGemmaArchitectures[] = {
    {"GemmaForCausalLM", "gemma", OutputKind::kTokens},
    {"GemmaForSequenceClassification", "gemma", OutputKind::kScores},
    {"GemmaForTokenClassification", "gemma", OutputKind::kTokenScores},
    {"GemmaModel", "gemma", OutputKind::kStates},
};
constexpr Architecture kGemma2Architectures[] = {
    {"Gemma2ForCausalLM", "gemma2", OutputKind::kTokens},
    {"Gemma2ForSequenceClassification", "gemma2", OutputKind::kScores},
    {"Gemma2ForTokenClassification", "gemma2", OutputKind::kTokenScores},
    {"Gemma2Model", "gemma2", OutputKind::kStates},
};
constexpr Architecture kGemma3Architectures[] = {
    {"Gemma3ForCausalLM", "gemma3_text", OutputKind::kTokens},
    {"Gemma3TextForSequenceClassification", "gemma3_text", OutputKind::kScores},
    {"Gemma3TextModel", "gemma3_text", OutputKind::kStates},
    {"Gemma3ForConditionalGeneration", "gemma3", OutputKind::kTokens, "gemma3_text"},
};
constexpr char kGemma3TextDefaults[] =
    R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
        "max_position_embeddings": 131072, "rope_theta": 1000000})";
constexpr std::string_view kGemmaKeys[] = {"use_bidirectional_attention"};
constexpr std::string_view kGemma2Keys[] = {"attn_logit_softcapping", "final_logit_softcapping",
                                            "layer_types", "sliding_window",
                                            "use_bidirectional_attention"};

void ReadAnyGemma(ObjectReader& root, ModelConfig& config, int64_t kv_heads, double theta) {
  ReadLlamaSizes(root, config, {.head_dim = 256, .kv_heads = kv_heads, .tied = true});
  // In early files the value "gelu" of hidden_act means the approximation too.
  const bool early = root.Has("hidden_act") && !root.Has("hidden_activation");
  config.activation =
      ReadActivation(root, early ? "hidden_act" : "hidden_activation", "gelu_pytorch_tanh");
  if (early && config.activation == Activation::kGelu) config.activation = Activation::kGeluTanh;
  config.norm.eps = ReadEps(root, "rms_norm_eps", 1e-6);
  config.norm.unit_offset = true;
  config.qkv_bias = config.output_bias = root.Boolean("attention_bias", false);
  config.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
  config.causal = !root.Boolean("use_bidirectional_attention", false);
  ReadRope(root, config, {.theta = theta});
}

void ReadGemma(ObjectReader& root, ModelConfig& config) { ReadAnyGemma(root, config, 16, 10000); }

// Reads the keys that Gemma 2 and 3 share. `cap` and `logit_cap` are the caps without their keys;
// null turns a cap off.
void ReadLaterGemma(ObjectReader& root, ModelConfig& config, double theta, double cap,
                    double logit_cap) {
  ReadAnyGemma(root, config, 4, theta);
  const auto read_cap = [&root](const char* key, double absent) {
    return static_cast<float>(root.Number(key, 1e-6, 1e6, root.IsNull(key) ? 0 : absent));
  };
  config.norm.order = NormOrder::kAround;
  const double query_scalar = root.Number("query_pre_attn_scalar", 1e-6, 1e12, 256);
  config.score_scale = static_cast<float>(1 / std::sqrt(query_scalar));
  config.score_soft_cap = read_cap("attn_logit_softcapping", cap);
  config.logit_soft_cap = read_cap("final_logit_softcapping", logit_cap);
}

void ReadGemma2(ObjectReader& root, ModelConfig& config) {
  ReadLaterGemma(root, config, 10000, 50, 30);
  ReadWindows(root, config, [](int64_t layer) { return layer % 2 == 0; });
}

void ReadGemma3(ObjectReader& root, ModelConfig& config) {
  ReadLaterGemma(root, config, 1e6, 0, 0);
  UseQkNorm(config, QkNormWeight::kHead);
  const int64_t pattern = root.Integer(
      root.Has("sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern", 1,
      kMaxLayers, 6);
  ReadWindows(root, config, [pattern](int64_t layer) { return (layer + 1) % pattern != 0; });
  if (!config.causal) config.window = config.window / 2 + 1;
  ReadLocalRope(root, config, {.theta_key = "rope_local_base_freq"});
}

}  // namespace

const ModelFamily kGemmaFamily = {
    .title = "Gemma",
    .architectures = kGemmaArchitectures,
    .names = LlamaNames(),
    .read = ReadGemma,
    .own_keys = kGemmaKeys,
};

const ModelFamily kGemma2Family = {
    .title = "Gemma 2",
    .architectures = kGemma2Architectures,
    .names = PostNormNames(),
    .read = ReadGemma2,
    .own_keys = kGemma2Keys,
};

const ModelFamily kGemma3Family = {
    .title = "Gemma 3 (text), EmbeddingGemma",
    .architectures = kGemma3Architectures,
    .names = PostNormNames(),
    .read = ReadGemma3,
    .own_keys = kGemma2Keys,
    .text_defaults = kGemma3TextDefaults,
};

}  // namespace sluice
