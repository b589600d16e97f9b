// Mistral, Mixtral, Ministral 3 and SmolLM3: Llama with a window in all layers, with experts in all
// layers, or without positions in some. Queries of Ministral 3 have a factor that is 1 up to the
// length in training, which is the limit.
#include <algorithm>

#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kMistralArchitectures[] = {
    {"MistralForCausalLM", "mistral", OutputKind::kTokens},
    {"MistralForSequenceClassification", "mistral", OutputKind::kScores},
    {"MistralForTokenClassification", "mistral", OutputKind::kTokenScores},
    {"MistralModel", "mistral", OutputKind::kStates},
    {"Mistral3ForConditionalGeneration", "mistral3", OutputKind::kTokens, "mistral ministral3"},
};
constexpr Architecture kMixtralArchitectures[] = {
    {"MixtralForCausalLM", "mixtral", OutputKind::kTokens},
    {"MixtralForSequenceClassification", "mixtral", OutputKind::kScores},
    {"MixtralForTokenClassification", "mixtral", OutputKind::kTokenScores},
    {"MixtralModel", "mixtral", OutputKind::kStates},
};
constexpr Architecture kMinistral3Architectures[] = {
    {"Ministral3ForCausalLM", "ministral3", OutputKind::kTokens},
    {"Ministral3ForSequenceClassification", "ministral3", OutputKind::kScores},
    {"Ministral3ForTokenClassification", "ministral3", OutputKind::kTokenScores},
    {"Ministral3Model", "ministral3", OutputKind::kStates},
};
constexpr char kMistralTextDefaults[] =
    R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 131072})";
constexpr Architecture kSmolLm3Architectures[] = {
    {"SmolLM3ForCausalLM", "smollm3", OutputKind::kTokens},
    {"SmolLM3ForSequenceClassification", "smollm3", OutputKind::kScores},
    {"SmolLM3ForTokenClassification", "smollm3", OutputKind::kTokenScores},
    {"SmolLM3Model", "smollm3", OutputKind::kStates},
};
constexpr std::string_view kMistralKeys[] = {"sliding_window"};
constexpr std::string_view kMixtralKeys[] = {"sliding_window", "num_local_experts", "num_experts",
                                             "num_experts_per_tok"};
constexpr std::string_view kSmolLm3Keys[] = {"no_rope_layers"};

void ReadMistral(ObjectReader& root, ModelConfig& config) {
  ReadLlamaLike(root, config, {}, {.kv_heads = 8});
  ReadWindows(root, config, [](int64_t) { return true; });
}

void ReadMixtral(ObjectReader& root, ModelConfig& config) {
  ReadLlamaLike(root, config, {.theta = 1e6}, {.kv_heads = 8, .eps = 1e-5});
  ReadWindows(
      root, config, [](int64_t) { return true; }, /*absent=*/0);
  ReadExperts(root, config, {.count = 8, .chosen = 2});
  config.experts.softmax = kernels::RouteSoftmax::kOfChosen;
}

void ReadMinistral3(ObjectReader& root, ModelConfig& config) {
  if (!root.Has("rope_parameters")) root.Fail("rope_parameters", "is missing");
  ReadLlamaLike(root, config, {.theta = 1e6}, {.head_dim = 128, .kv_heads = 8, .eps = 1e-5});
  ReadWindows(
      root, config, [](int64_t) { return true; }, /*absent=*/0);
  ObjectReader rope = root.Object("rope_parameters");
  const double growth = rope.Number("llama_4_scaling_beta", 0, 1e6, 0);
  const int64_t trained =
      rope.Integer("original_max_position_embeddings", 1, kMaxModelPositions, config.max_positions);
  if (growth > 0) config.max_positions = std::min(config.max_positions, trained);
}

// no_rope_layers has a 1 for each layer with positions.
void ReadSmolLm3(ObjectReader& root, ModelConfig& config) {
  ReadLlamaLike(root, config, {.theta = 2000000}, {.kv_heads = 4, .tied = true});
  config.qkv_bias = config.output_bias = root.Boolean("attention_bias", false);
  config.mlp_bias = root.Boolean("mlp_bias", false);
  const std::vector<int64_t> rotated = root.Integers("no_rope_layers", 0, 1);
  if (!rotated.empty() && std::ssize(rotated) != config.layers) {
    root.Fail("no_rope_layers", "must have a number for each layer");
    return;
  }
  for (const int64_t flag : rotated) config.unrotated.push_back(flag == 0);
  if (!rotated.empty()) return;
  const int64_t interval = root.Integer("no_rope_layer_interval", 1, kMaxLayers, 4);
  for (int64_t n = 1; n <= config.layers; ++n) config.unrotated.push_back(n % interval == 0);
}

constexpr TensorNames MixtralNames() {
  TensorNames names = LlamaNames();
  names.experts =
      EachExpert("block_sparse_moe.gate", "block_sparse_moe.experts.", "w1", "w3", "w2");
  return names;
}

}  // namespace

const ModelFamily kMixtralFamily = {
    .title = "Mixtral",
    .architectures = kMixtralArchitectures,
    .names = MixtralNames(),
    .read = ReadMixtral,
    .own_keys = kMixtralKeys,
};

const ModelFamily kMistralFamily = {
    .title = "Mistral",
    .architectures = kMistralArchitectures,
    .names = LlamaNames(),
    .read = ReadMistral,
    .own_keys = kMistralKeys,
    .text_defaults = kMistralTextDefaults,
    .takes_extensions = true,
};

const ModelFamily kMinistral3Family = {
    .title = "Ministral 3",
    .architectures = kMinistral3Architectures,
    .names = LlamaNames(),
    .read = ReadMinistral3,
    .own_keys = kMistralKeys,
    .text_defaults = kMistralTextDefaults,
    .takes_extensions = true,
};

const ModelFamily kSmolLm3Family = {
    .title = "SmolLM3",
    .architectures = kSmolLm3Architectures,
    .names = LlamaNames(),
    .read = ReadSmolLm3,
    .own_keys = kSmolLm3Keys,
    .takes_extensions = true,
};

}  // namespace sluice
