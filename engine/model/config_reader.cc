#include "engine/model/config_reader.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice {
namespace {

constexpr int64_t kMaxHeadDim = 1024;  // as kernels::kMaxHeadDim
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxExpertsOfLayers = 1 << 16;
constexpr double kMinEps = 1e-20;
constexpr int64_t kMaxNamed = 20;  // keys or ids in one warning

// Returns the first values, separated by commas, and the number of the others.
template <typename T>
std::string Listed(const std::vector<T>& values) {
  const int64_t named = std::min<int64_t>(std::ssize(values), kMaxNamed);
  const std::string text = absl::StrJoin(values.begin(), values.begin() + named, ", ");
  const int64_t more = std::ssize(values) - named;
  return more == 0 ? text : absl::StrCat(text, " and ", more, " more");
}

void ReadHeadDim(ObjectReader& root, const SizeKeys& keys, ModelConfig& config) {
  if (root.Has(keys.head_dim)) {
    config.head_dim = root.Integer(keys.head_dim, 1, kMaxHeadDim);
  } else if (keys.fallback_head_dim > 0 && !root.IsNull(keys.head_dim)) {
    config.head_dim = keys.fallback_head_dim;
  } else if (config.hidden_size % config.heads == 0) {
    config.head_dim = config.hidden_size / config.heads;
  } else {
    root.Fail(keys.heads, absl::StrCat("is ", config.heads, ", must divide ", keys.hidden, " ",
                                       config.hidden_size, " when head_dim is absent"));
    config.head_dim = 1;
  }
  if (config.head_dim > kMaxHeadDim) {
    root.Fail(keys.head_dim,
              absl::StrCat("is ", config.head_dim, ", must be at most ", kMaxHeadDim));
  }
  if (config.heads * config.head_dim > kMaxWidth) {
    root.Fail(keys.heads, absl::StrCat("times head_dim is ", config.heads * config.head_dim,
                                       ", must be at most ", kMaxWidth));
  }
}

}  // namespace

void ReadSizes(ObjectReader& root, ModelConfig& config, const SizeKeys& keys) {
  const auto fallback = [](int64_t value) {
    return value > 0 ? std::optional<int64_t>(value) : std::nullopt;
  };
  config.vocab_size = root.Integer("vocab_size", 1, kMaxVocab);
  config.hidden_size = root.Integer(keys.hidden, 1, kMaxWidth);
  config.intermediate_size = root.Integer(keys.intermediate, 1, 4 * kMaxWidth,
                                          fallback(keys.intermediate_factor * config.hidden_size));
  config.layers = root.Integer(keys.layers, 1, kMaxLayers);
  config.max_positions =
      root.Integer(keys.positions, 1, kMaxModelPositions, fallback(keys.fallback_positions));
  config.heads = config.kv_heads = root.Integer(keys.heads, 1, kMaxHeads);
  ReadHeadDim(root, keys, config);
}

void ReadLlamaSizes(ObjectReader& root, ModelConfig& config, const LlamaDefaults& defaults) {
  ReadSizes(root, config, {.fallback_head_dim = defaults.head_dim});
  config.tie_word_embeddings = root.Boolean("tie_word_embeddings", defaults.tied);
  const bool fixed = defaults.kv_heads > 0 && !root.IsNull("num_key_value_heads");
  config.kv_heads =
      root.Integer("num_key_value_heads", 1, kMaxHeads, fixed ? defaults.kv_heads : config.heads);
  if (config.heads % config.kv_heads != 0) {
    root.Fail("num_key_value_heads", absl::StrCat("is ", config.kv_heads, ", must divide the ",
                                                  config.heads, " num_attention_heads"));
  }
  config.serving.classifier = {.pooling = Pooling::kLast, .bias = false, .module = "score"};
  config.serving.token_classifier = {.module = "score"};
}

void ReadLlamaLike(ObjectReader& root, ModelConfig& config, const RopeKeys& rope,
                   const LlamaDefaults& defaults) {
  ReadLlamaSizes(root, config, defaults);
  config.activation = ReadActivation(root, "hidden_act", "silu");
  config.norm.eps = ReadEps(root, "rms_norm_eps", defaults.eps);
  ReadRope(root, config, rope);
}

void SetBidirectional(ModelConfig& config) {
  if (!config.causal) return;
  config.causal = false;
  if (config.window > 0) ++config.window;
}

void ReadEmbeddingWidth(ObjectReader& root, int64_t usual, ModelConfig& config) {
  config.embedding_width = root.Integer("embedding_size", 1, kMaxWidth, usual);
  if (config.embedding_width == config.hidden_size || !config.has_lm_head) return;
  config.has_lm_head = false;
  config.warnings.push_back(absl::StrCat(
      "config.json: embedding_size ", config.embedding_width, " differs from hidden_size ",
      config.hidden_size, ", so the head of ", config.architecture,
      " is not served; the model serves the states of its last layer"));
}

void SetClassic(ModelConfig& config) {
  config.positions = PositionKind::kLearned;
  config.position_rows = config.max_positions;
  config.norm.kind = NormKind::kLayer;
  config.norm.bias = true;
  config.gated_mlp = false;
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
}

void SetBertLike(ModelConfig& config) {
  SetClassic(config);
  config.norm.order = NormOrder::kPost;
  config.norm.embedding = true;
  config.norm.final = false;
  config.causal = false;
  config.head_bias = true;
  config.head_transform = true;
  config.serving.classifier.pooler = true;
}

void ReadBertLike(ObjectReader& root, ModelConfig& config) {
  ReadSizes(root, config, {});
  SetBertLike(config);
  config.norm.eps = ReadEps(root, "layer_norm_eps", 1e-12);
  config.activation = ReadActivation(root, "hidden_act", "gelu");
  config.tie_word_embeddings = root.Boolean("tie_word_embeddings", true);
}

void OffsetPositions(ObjectReader& root, ModelConfig& config) {
  const int64_t padding = root.Integer("pad_token_id", 0, config.vocab_size - 1, 1);
  config.padding_token = static_cast<int32_t>(padding);
  config.position_offset = padding;
  if (padding + 1 >= config.max_positions) {
    root.Fail("max_position_embeddings",
              absl::StrCat("is ", config.max_positions, ", must be above pad_token_id + 1"));
    return;
  }
  config.max_positions -= padding + 1;
}

void UseClassifierOfTwoLayers(ModelConfig& config) {
  config.serving.classifier.pooler_module = "classifier.dense";
  config.serving.classifier.module = "classifier.out_proj";
}

void ReadExperts(ObjectReader& object, ModelConfig& config, const ExpertKeys& keys) {
  const auto fallback = [](int64_t value) {
    return value > 0 ? std::optional<int64_t>(value) : std::nullopt;
  };
  const char* const usual = object.Has("num_experts") ? "num_experts" : "num_local_experts";
  const char* const count_key = keys.count_key != nullptr ? keys.count_key : usual;
  ExpertsConfig& experts = config.experts;
  experts.count = object.Integer(count_key, 1, kernels::kMaxExperts, fallback(keys.count));
  const int64_t most = std::min(experts.count, kernels::kMaxChosen);
  experts.chosen = object.Integer(keys.chosen_key, 1, most, fallback(keys.chosen));
  if (experts.chosen > most) {
    object.Fail(keys.chosen_key,
                absl::StrCat("is ", experts.chosen, " by default, must be in [1, ", most, "]"));
    experts.chosen = most;
  }
  experts.width = config.intermediate_size;
  experts.layers.assign(config.layers, true);
  if (experts.count * config.layers > kMaxExpertsOfLayers) {
    object.Fail(count_key, absl::StrCat("is ", experts.count, "; with ", config.layers,
                                        " layers, the model must have at most ",
                                        kMaxExpertsOfLayers, " experts in all layers together"));
    experts = {};
  }
}

void UseQkNorm(ModelConfig& config, QkNormWeight weight) {
  config.qk_norm = true;
  config.qk_norm_weight = weight;
  config.qk_norm_eps = config.norm.eps;
}

void ReadRelativeBias(ObjectReader& root, const char* buckets_key, const char* distance_key,
                      ModelConfig& config) {
  RelativeBiasConfig& bias = config.relative_bias;
  bias.buckets = root.Integer(buckets_key, 4, 4096, 32);
  if (distance_key == nullptr) {
    if (bias.buckets / 4 < bias.max_distance) return;
    root.Fail(buckets_key,
              absl::StrCat("is ", bias.buckets, ", must be below ", 4 * bias.max_distance));
    bias.max_distance = bias.buckets;
    return;
  }
  // The first quarter of the buckets has a distance each.
  bias.max_distance = root.Integer(distance_key, bias.buckets / 4 + 1, kMaxModelPositions,
                                   std::max<int64_t>(bias.max_distance, bias.buckets / 4 + 1));
}

void CheckDisentangled(ObjectReader& object, const char* span_key, const char* distance_key,
                       ModelConfig& config) {
  DisentangledConfig& wanted = config.disentangled;
  if (config.kv_heads != config.heads) {
    object.Fail(span_key, absl::StrCat("needs one KV head for each query head; there are ",
                                       config.kv_heads, " and ", config.heads));
  }
  if (wanted.max_distance == 0) return;
  const int64_t least = wanted.span / 2 + 2;
  if (wanted.span >= 4 && wanted.max_distance >= least) return;
  object.Fail(distance_key,
              absl::StrCat("is ", wanted.max_distance, ", must be at least ", least, " for ",
                           span_key, " ", wanted.span, ", which must be at least 4"));
  wanted.max_distance = 0;
}

float ReadEps(ObjectReader& root, const char* key, double fallback) {
  return static_cast<float>(root.Number(key, kMinEps, 1.0, fallback));
}

Activation ReadActivation(ObjectReader& root, const char* key, const char* usual) {
  constexpr std::pair<std::string_view, Activation> kNames[] = {
      {"gelu", Activation::kGelu},
      {"gelu_python", Activation::kGelu},
      {"gelu_new", Activation::kGeluTanh},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"gelu_python_tanh", Activation::kGeluTanh},
      {"gelu_fast", Activation::kGeluTanh},
      {"gelu_accurate", Activation::kGeluTanh},
      {"relu", Activation::kRelu},
      {"relu2", Activation::kSquaredRelu},
      {"silu", Activation::kSilu},
      {"swish", Activation::kSilu}};
  const auto of = [&](std::string_view name) {
    return std::ranges::find(kNames, name, &std::pair<std::string_view, Activation>::first);
  };
  std::vector<std::string_view> names = {usual};  // the first one is the default
  for (const auto& [name, activation] : kNames) names.push_back(name);
  return of(names[root.Choice(key, names)])->second;
}

void ReadLayerTypes(ObjectReader& root, ModelConfig& config,
                    const std::function<bool(int64_t)>& usual) {
  config.windowed.assign(config.layers, false);
  const nlohmann::json* const types = root.Find("layer_types");
  if (types != nullptr && (!types->is_array() || std::ssize(*types) != config.layers)) {
    root.Fail("layer_types", "must be a list with a type for each layer");
    return;
  }
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    if (types == nullptr) {
      config.windowed[layer] = usual(layer);
      continue;
    }
    const nlohmann::json& type = (*types)[layer];
    config.windowed[layer] = type == "sliding_attention";
    if (!config.windowed[layer] && type != "full_attention") {
      root.Fail("layer_types", "has a type other than full_attention and sliding_attention");
    }
  }
}

void ReadWindows(ObjectReader& root, ModelConfig& config, const std::function<bool(int64_t)>& usual,
                 int64_t absent) {
  ReadLayerTypes(root, config, usual);
  const bool any = std::ranges::find(config.windowed, true) != config.windowed.end();
  const bool stated = root.Has("sliding_window") || (absent > 0 && !root.IsNull("sliding_window"));
  if (!any || !stated) {
    if (root.Has("layer_types") && any) root.Fail("layer_types", "needs a sliding_window");
    config.windowed.clear();
    config.window = 0;
    return;
  }
  config.window = root.Integer("sliding_window", 1, int64_t{1} << 40, absent);
}

std::vector<int32_t> ReadTokenIds(ObjectReader& root, const std::string& key, size_t most,
                                  ModelConfig& config) {
  constexpr int64_t kLimit = std::numeric_limits<int32_t>::max();
  const std::vector<int64_t> all = root.Integers(key, -kLimit, kLimit);
  if (all.size() > most) {
    root.Fail(key, absl::StrCat("names ", all.size(), " tokens; the limit is ", most));
  }
  std::vector<int32_t> ids;
  std::vector<int64_t> beyond;
  for (const int64_t id : all) {
    if (id >= 0 && id < config.vocab_size) {
      ids.push_back(static_cast<int32_t>(id));
    } else {
      beyond.push_back(id);
    }
  }
  if (!beyond.empty()) {
    config.warnings.push_back(absl::StrCat(root.PathOf(key), " names ", Listed(beyond),
                                           ", which is ignored: the vocabulary has ids 0 to ",
                                           config.vocab_size - 1));
  }
  return ids;
}

void WarnAboutUnknown(const std::vector<std::string>& keys, std::string_view place,
                      ModelConfig& config) {
  if (keys.empty()) return;
  config.warnings.push_back(
      absl::StrCat("config.json has keys that are unknown to Sluice and transformers for ",
                   config.architecture, "; they are ignored, so check their spelling: ",
                   absl::string_view(place.data(), place.size()), Listed(keys)));
}

}  // namespace sluice
