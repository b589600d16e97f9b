#include "engine/model/config.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/model/json_reader.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 16;
constexpr int64_t kMaxWidth = 65536;
constexpr int64_t kMaxPositions = int64_t{1} << 20;
constexpr int64_t kMaxHeadDim = 1024;
// Cosines and sines of all positions: 1 GiB.
constexpr int64_t kMaxRotations = int64_t{1} << 28;
constexpr size_t kMaxEosTokens = 256;

// Keys that change what a Llama-like model computes in ways that are not supported, each with the
// one value (besides null) that leaves it alone; null where there is none.
const json& NeutralValues() {
  static const json* const values = new json{{"add_cross_attention", false},
                                             {"attention_chunk_size", nullptr},
                                             {"attention_multiplier", nullptr},
                                             {"attn_logit_softcapping", nullptr},
                                             {"clip_qkv", nullptr},
                                             {"compression_config", nullptr},
                                             {"embedding_multiplier", 1.0},
                                             {"final_logit_softcapping", nullptr},
                                             {"is_encoder_decoder", false},
                                             {"logit_scale", 1.0},
                                             {"logits_scaling", 1.0},
                                             {"model_type", "llama"},
                                             {"n_routed_experts", nullptr},
                                             {"no_rope_layers", nullptr},
                                             {"num_experts", nullptr},
                                             {"num_local_experts", nullptr},
                                             {"partial_rotary_factor", 1.0},
                                             {"qk_norm", false},
                                             {"quantization_config", nullptr},
                                             {"residual_multiplier", 1.0},
                                             {"rope_interleaved", false},
                                             {"sliding_window", nullptr},
                                             {"use_qk_norm", false},
                                             {"use_sliding_window", false}};
  return *values;
}

void RefuseUnsupported(const json& document, ObjectReader& root) {
  for (const auto& [key, neutral] : NeutralValues().items()) {
    if (root.Has(key) && document[key] != neutral) root.Fail(key, "is not supported");
  }
  const json architectures = document.value("architectures", json());
  const json llama = "LlamaForCausalLM";
  if (!architectures.is_array() ||
      std::find(architectures.begin(), architectures.end(), llama) == architectures.end()) {
    root.Fail("architectures", "does not contain \"LlamaForCausalLM\"");
  }
  const json layer_types = document.value("layer_types", json::array());
  for (const json& type : layer_types) {
    if (type != "full_attention") root.Fail("layer_types", "has more than full_attention");
  }
  root.Choice("hidden_act", {"silu"});
  root.Choice("torch_dtype", {"float32", "float16", "bfloat16"});
  root.Choice("dtype", {"float32", "float16", "bfloat16"});
}

void ReadHeads(ObjectReader& root, ModelConfig& config) {
  config.heads = root.Integer("num_attention_heads", 1, 4096);
  config.kv_heads = root.Integer("num_key_value_heads", 1, 4096, config.heads);
  if (config.heads % config.kv_heads != 0) {
    root.Fail("num_key_value_heads", absl::StrCat("is ", config.kv_heads, ", must divide the ",
                                                  config.heads, " num_attention_heads"));
  }
  if (!root.Has("head_dim") && config.hidden_size % config.heads != 0) {
    root.Fail("num_attention_heads", absl::StrCat("is ", config.heads, ", must divide hidden_size ",
                                                  config.hidden_size, " when head_dim is absent"));
  }
  config.head_dim = root.Integer("head_dim", 2, kMaxHeadDim, config.hidden_size / config.heads);
  if (config.head_dim < 2 || config.head_dim % 2 != 0 || config.head_dim > kMaxHeadDim) {
    root.Fail("head_dim",
              absl::StrCat("is ", config.head_dim, ", must be even and in [2, ", kMaxHeadDim, "]"));
  }
  if (config.heads * config.head_dim > kMaxWidth) {
    root.Fail("num_attention_heads",
              absl::StrCat("times head_dim is ", config.heads * config.head_dim,
                           ", must be at most ", kMaxWidth));
  }
}

void ReadShape(ObjectReader& root, ModelConfig& config) {
  config.vocab_size = root.Integer("vocab_size", 1, int64_t{1} << 24);
  config.hidden_size = root.Integer("hidden_size", 1, kMaxWidth);
  config.intermediate_size = root.Integer("intermediate_size", 1, 4 * kMaxWidth);
  config.layers = root.Integer("num_hidden_layers", 1, 1024);
  config.max_positions = root.Integer("max_position_embeddings", 1, kMaxPositions);
  config.rms_norm_eps = static_cast<float>(root.Number("rms_norm_eps", 1e-20, 1.0, 1e-6));
  config.tie_word_embeddings = root.Boolean("tie_word_embeddings", false);
  config.attention_bias = root.Boolean("attention_bias", false);
  config.mlp_bias = root.Boolean("mlp_bias", false);
  ReadHeads(root, config);
}

// Published checkpoints have `rope_theta` beside `rope_scaling`; newer transformers write both into
// `rope_parameters`.
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
      scaling.Integer("original_max_position_embeddings", 1, kMaxPositions);
  if (llama3.high_freq_factor <= llama3.low_freq_factor) {
    scaling.Fail("high_freq_factor", "must be above low_freq_factor");
  }
}

void ReadTokens(ObjectReader& root, ModelConfig& config) {
  const int64_t last = config.vocab_size - 1;
  if (root.Has("bos_token_id")) {
    config.bos_token_id = static_cast<int32_t>(root.Integer("bos_token_id", 0, last));
  }
  const std::vector<int64_t> eos = root.Integers("eos_token_id", 0, last);
  if (eos.size() > kMaxEosTokens) {
    root.Fail("eos_token_id",
              absl::StrCat("names ", eos.size(), " tokens, the limit is ", kMaxEosTokens));
  }
  for (int64_t id : eos) {
    config.eos_token_ids.push_back(static_cast<int32_t>(id));
  }
}

void ReadPositionWise(ObjectReader& extensions, ModelConfig& config) {
  PositionWiseConfig& position_wise = config.position_wise;
  ObjectReader object = extensions.Object("position_wise");
  object.AllowOnly({"projections", "max_positions", "bias"});
  ObjectReader projections = object.Object("projections");
  projections.AllowOnly({"q", "k", "v", "o"});
  const char* const keys[kProjections] = {"q", "k", "v", "o"};
  for (int p = 0; p < kProjections; ++p) {
    position_wise.layers[p] = projections.Flags(keys[p], config.layers);
  }
  if (!extensions.Has("position_wise")) return;
  position_wise.max_positions = object.Integer("max_positions", 1, kMaxPositions);
  position_wise.bias = static_cast<PositionWiseBias>(object.Choice("bias", {"none", "e", "le"}));
  config.max_positions = std::min(config.max_positions, position_wise.max_positions);
}

void ReadXsa(ObjectReader& extensions, ModelConfig& config) {
  ObjectReader object = extensions.Object("xsa");
  object.AllowOnly({"layers", "form", "eps", "gate"});
  config.xsa.layers = object.Flags("layers", config.layers);
  config.xsa.form = static_cast<XsaConfig::Form>(object.Choice("form", {"norm", "squared"}));
  config.xsa.eps = static_cast<float>(object.Number("eps", 1e-12, 1.0, 1e-6));
  config.xsa.gate = object.Choice("gate", {"none", "tanh"}) == 1;
}

void ReadExtensions(ObjectReader& root, ModelConfig& config) {
  ObjectReader extensions = root.Object("sluice");
  extensions.AllowOnly({"tokenizer", "position_wise", "xsa"});
  if (extensions.Has("tokenizer")) {
    extensions.Choice("tokenizer", {"byte"});
    config.byte_tokenizer = true;
    if (config.vocab_size < 256) {
      extensions.Fail("tokenizer", absl::StrCat("byte needs a vocab_size of at least 256, not ",
                                                config.vocab_size));
    }
  }
  ReadPositionWise(extensions, config);
  ReadXsa(extensions, config);
}

void CheckRotations(ObjectReader& root, const ModelConfig& config) {
  const int64_t rotations = config.max_positions * config.head_dim;
  if (rotations <= kMaxRotations) return;
  root.Fail("max_position_embeddings",
            absl::StrCat("times head_dim is ", rotations, ", must be at most ", kMaxRotations));
}

bool AnySet(const std::vector<bool>& flags) {
  return std::find(flags.begin(), flags.end(), true) != flags.end();
}

}  // namespace

bool PositionWiseConfig::Any() const {
  return std::any_of(std::begin(layers), std::end(layers), AnySet);
}

bool XsaConfig::Any() const { return AnySet(layers); }

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view text) {
  auto document = ParseJson(text, kMaxDepth);
  if (!document.ok()) return document.status();
  if (!document->is_object()) return absl::InvalidArgumentError("is not a JSON object");

  absl::Status status;
  ObjectReader root(*document, "", &status);
  RefuseUnsupported(*document, root);
  ModelConfig config;
  ReadShape(root, config);
  ReadRope(root, config.rope);
  ReadTokens(root, config);
  ReadExtensions(root, config);
  CheckRotations(root, config);
  if (!status.ok()) return status;
  return config;
}

}  // namespace sluice
