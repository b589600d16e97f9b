// Qwen2 and Qwen3: Llama with biases of q, k and v, or with norms of q and k. Qwen3-MoE: Qwen3 with
// experts in some or all layers.
#include <algorithm>

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
constexpr Architecture kQwen3MoeArchitectures[] = {
    {"Qwen3MoeForCausalLM", "qwen3_moe", OutputKind::kTokens},
    {"Qwen3MoeForSequenceClassification", "qwen3_moe", OutputKind::kScores},
    {"Qwen3MoeForTokenClassification", "qwen3_moe", OutputKind::kTokenScores},
    {"Qwen3MoeModel", "qwen3_moe", OutputKind::kStates},
};
constexpr std::string_view kQwen3MoeKeys[] = {"sliding_window", "use_sliding_window",
                                              "num_local_experts", "num_experts",
                                              "num_experts_per_tok"};
constexpr std::string_view kQwenKeys[] = {"layer_types", "sliding_window", "use_sliding_window"};
constexpr std::string_view kQwen3Keys[] = {"layer_types", "sliding_window",
                                           "use_bidirectional_attention", "use_sliding_window"};

// Files state the window even if use_sliding_window turns it off. Without layer_types, the layers
// from max_window_layers on have it.
void ReadQwenWindows(ObjectReader& root, ModelConfig& config) {
  if (!root.Boolean("use_sliding_window", false)) return;
  const int64_t whole = root.Integer("max_window_layers", 0, kMaxLayers, 28);
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

// A window applies to all layers. Layers have experts unless mlp_only_layers lists them or
// decoder_sparse_step leaves them out.
void ReadQwen3Moe(ObjectReader& root, ModelConfig& config) {
  ReadLlamaLike(root, config, {}, {.kv_heads = 4});
  config.qkv_bias = config.output_bias = root.Boolean("attention_bias", false);
  UseQkNorm(config, QkNormWeight::kHead);
  if (root.Boolean("use_sliding_window", false)) {
    ReadWindows(root, config, [](int64_t) { return true; });
  }
  ReadExperts(root, config, {.count = 128, .chosen = 8});
  ExpertsConfig& experts = config.experts;
  experts.width = root.Integer("moe_intermediate_size", 1, 4 * kMaxWidth, 768);
  if (root.Boolean("norm_topk_prob", false)) {
    experts.softmax = kernels::RouteSoftmax::kOfChosen;
  }
  const int64_t step = root.Integer("decoder_sparse_step", 1, kMaxLayers, 1);
  for (int64_t layer = 0; layer < std::ssize(experts.layers); ++layer) {
    experts.layers[layer] = (layer + 1) % step == 0;
  }
  for (const int64_t layer : root.Integers("mlp_only_layers", 0, config.layers - 1)) {
    if (!experts.layers.empty()) experts.layers[layer] = false;
  }
  if (std::ranges::count(experts.layers, true) == 0) experts = {};
}

constexpr TensorNames Qwen3MoeNames() {
  TensorNames names = LlamaNames();
  names.experts = EachExpert("mlp.gate", "mlp.experts.", "gate_proj", "up_proj", "down_proj");
  return names;
}

}  // namespace

const ModelFamily kQwen3MoeFamily = {
    .title = "Qwen3-MoE",
    .architectures = kQwen3MoeArchitectures,
    .names = Qwen3MoeNames(),
    .read = ReadQwen3Moe,
    .own_keys = kQwen3MoeKeys,
};

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
