// Qwen2 and Qwen3: Llama with biases of q, k and v, or with norms of q and k.
#include "absl/strings/str_cat.h"
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kQwen2Architectures[] = {
    {"Qwen2ForCausalLM", "qwen2", OutputKind::kTokens},
    {"Qwen2ForSequenceClassification", "qwen2", OutputKind::kScores},
    {"Qwen2ForTokenClassification", "qwen2", OutputKind::kTokenScores},
    {"Qwen2Model", "qwen2", OutputKind::kStates},
};
constexpr Architecture kQwen3Architectures[] = {
    {"Qwen3ForCausalLM", "qwen3", OutputKind::kTokens},
    {"Qwen3ForSequenceClassification", "qwen3", OutputKind::kScores},
    {"Qwen3ForTokenClassification", "qwen3", OutputKind::kTokenScores},
    {"Qwen3Model", "qwen3", OutputKind::kStates},
    {"Qwen3BidirectionalModel", "qwen3", OutputKind::kProjectedStates},
};
constexpr std::string_view kQwenKeys[] = {"layer_types", "sliding_window", "use_sliding_window"};
constexpr std::string_view kQwen3Keys[] = {"layer_types", "sliding_window",
                                           "use_bidirectional_attention", "use_sliding_window"};

// Files state the window even if use_sliding_window turns it off. Without layer_types, the layers
// from max_window_layers on have it.
void ReadQwenWindows(ObjectReader& root, ModelConfig& config) {
  if (!root.Boolean("use_sliding_window", false)) return;
  const int64_t whole = root.Integer("max_window_layers", 0, kMaxLayers, config.layers);
  ReadWindows(root, config, [whole](int64_t layer) { return layer >= whole; });
}

void ReadQwen2(ObjectReader& root, ModelConfig& config) {
  ReadLlamaLike(root, config, {}, {.kv_heads = 32});
  config.qkv_bias = true;
  ReadQwenWindows(root, config);
}

void ReadQwen3(ObjectReader& root, ModelConfig& config) {
  ReadLlamaLike(root, config, {}, {.head_dim = 128, .kv_heads = 32});
  config.qkv_bias = config.output_bias = root.Boolean("attention_bias", false);
  UseQkNorm(config, QkNormWeight::kHead);
  ReadQwenWindows(root, config);
  // The class in transformers ignores this key.
  const bool both = config.architecture == "Qwen3BidirectionalModel";
  if (root.Boolean("use_bidirectional_attention", both) != both) {
    root.Fail("use_bidirectional_attention",
              absl::StrCat("is not supported, must be ", both ? "true" : "false", " for ",
                           config.architecture, "; set is_causal"));
  }
  if (both) SetBidirectional(config);
}

}  // namespace

const ModelFamily kQwen2Family = {
    .title = "Qwen2",
    .architectures = kQwen2Architectures,
    .names = LlamaNames(),
    .read = ReadQwen2,
    .own_keys = kQwenKeys,
    .takes_extensions = true,
};

const ModelFamily kQwen3Family = {
    .title = "Qwen3",
    .architectures = kQwen3Architectures,
    .names = LlamaNames(),
    .read = ReadQwen3,
    .own_keys = kQwen3Keys,
    .takes_extensions = true,
};

}  // namespace sluice
