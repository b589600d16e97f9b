#include "engine/model/config.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr int kMaxConfigDepth = 16;
// The limit for the tables of cosines and sines of all positions: 1 GiB.
constexpr int64_t kMaxRotations = int64_t{1} << 28;
constexpr size_t kMaxEosTokens = 256;

// Returns the unsupported keys that change a result. Each has the one value (other than null) that
// has no effect, or null if there is no such value.
const json& NeutralValues() {
  static const json* const values = new json{{"add_cross_attention", false},
                                             {"attention_chunk_size", nullptr},
                                             {"attention_multiplier", nullptr},
                                             {"attn_logit_softcapping", nullptr},
                                             {"clip_qkv", nullptr},
                                             {"compression_config", nullptr},
                                             {"embedding_multiplier", 1.0},
                                             {"final_logit_softcapping", nullptr},
                                             {"is_decoder", false},
                                             {"is_encoder_decoder", false},
                                             {"logit_scale", 1.0},
                                             {"logits_scaling", 1.0},
                                             {"n_routed_experts", nullptr},
                                             {"no_rope_layers", nullptr},
                                             {"num_experts", nullptr},
                                             {"num_local_experts", nullptr},
                                             {"partial_rotary_factor", 1.0},
                                             {"position_embedding_type", "absolute"},
                                             {"qk_norm", false},
                                             {"residual_multiplier", 1.0},
                                             {"rope_interleaved", false},
                                             {"scale_attn_by_inverse_layer_idx", false},
                                             {"scale_attn_weights", true},
                                             {"sliding_window", nullptr},
                                             {"use_bidirectional_attention", false},
                                             {"use_qk_norm", false},
                                             {"use_sliding_window", false}};
  return *values;
}

struct Known {
  const ModelFamily* family;
  const Architecture* architecture;
};

// Returns the first known architecture of the document.
Known FindArchitecture(const json& document, ObjectReader& root) {
  const json named = document.value("architectures", json());
  std::string names;
  for (const ModelFamily* const family : AllFamilies()) {
    for (const Architecture& known : family->architectures) {
      if (named.is_array() &&
          std::find(named.begin(), named.end(), json(known.name)) != named.end()) {
        return {family, &known};
      }
      absl::StrAppend(&names, names.empty() ? "" : ", ", known.name);
    }
  }
  root.Fail("architectures", absl::StrCat("has no supported architecture; supported are: ", names));
  return {&kLlamaFamily, &kLlamaFamily.architectures[0]};
}

void RefuseUnsupported(const json& document, const Known& known, ObjectReader& root) {
  const auto own = [&](std::string_view key) {
    const auto keys = known.family->own_keys;
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  for (const auto& [key, neutral] : NeutralValues().items()) {
    if (root.Has(key) && !own(key) && document[key] != neutral) {
      root.Fail(key, neutral.is_null()
                         ? std::string("is not supported")
                         : absl::StrCat("is not supported, must be ", neutral.dump()));
    }
  }
  const Architecture& architecture = *known.architecture;
  if (root.Has("model_type") && document["model_type"] != architecture.model_type) {
    root.Fail("model_type", absl::StrCat("is not supported, must be \"", architecture.model_type,
                                         "\" for ", architecture.name));
  }
  if (own("layer_types")) return;
  const json layer_types = document.value("layer_types", json::array());
  for (const json& type : layer_types) {
    if (type != "full_attention") root.Fail("layer_types", "has a type other than full_attention");
  }
}

void ReadDType(ObjectReader& root, ModelConfig& config) {
  constexpr int kBfloat16 = 2;
  for (const char* const key : {"torch_dtype", "dtype"}) {
    config.stored_in_bf16 |= root.Choice(key, {"float32", "float16", "bfloat16"}) == kBfloat16;
  }
}

void ReadTokens(ObjectReader& root, ModelConfig& config) {
  const int64_t last = config.vocab_size - 1;
  if (root.Has("bos_token_id")) {
    config.bos_token_id = root.Integer("bos_token_id", 0, last);
  }
  const std::vector<int64_t> eos = root.Integers("eos_token_id", 0, last);
  if (eos.size() > kMaxEosTokens) {
    root.Fail("eos_token_id",
              absl::StrCat("names ", eos.size(), " tokens; the limit is ", kMaxEosTokens));
  }
  for (int64_t id : eos) {
    config.eos_token_ids.push_back(id);
  }
}

void ReadPositionWise(ObjectReader& extensions, ModelConfig& config) {
  PositionWiseConfig& position_wise = config.position_wise;
  ObjectReader object = extensions.Object("position_wise");
  object.AllowOnly({"projections", "max_positions", "bias"});
  ObjectReader projections = object.Object("projections");
  projections.AllowOnly({"q", "k", "v", "o", "gate", "up", "down"});
  constexpr const char* keys[] = {"q", "k", "v", "o", "gate", "up", "down"};
  static_assert(std::size(keys) == kProjections);
  for (int p = 0; p < kProjections; ++p) {
    if (projections.Has(keys[p]) || position_wise.layers[p].empty()) {
      position_wise.layers[p] = projections.Flags(keys[p], config.layers);
    }
  }
  if (!config.gated_mlp && projections.Has("gate")) {
    projections.Fail("gate", "names a matrix that an MLP without gate does not have");
  }
  if (!extensions.Has("position_wise")) return;
  position_wise.max_positions = object.Integer("max_positions", 1, kMaxModelPositions);
  position_wise.bias = object.Enum<PositionWiseBias>("bias");
  config.max_positions = std::min(config.max_positions, position_wise.max_positions);
}

void ReadXsa(ObjectReader& extensions, ModelConfig& config) {
  ObjectReader object = extensions.Object("xsa");
  object.AllowOnly({"layers", "form", "eps", "gate"});
  config.xsa.layers = object.Flags("layers", config.layers);
  config.xsa.form = object.Enum<XsaConfig::Form>("form");
  config.xsa.eps = static_cast<float>(object.Number("eps", 1e-12, 1.0, 1e-6));
  config.xsa.gate = object.Choice("gate", {"none", "tanh"}) == 1;
}

void ReadInput(ObjectReader& extensions, ModelConfig& config) {
  ObjectReader object = extensions.Object("input");
  object.AllowOnly({"kind", "width", "adapter", "bias"});
  config.input = object.Enum<InputKind>("kind");
  if (config.input == InputKind::kIds) {
    for (const char* key : {"width", "adapter", "bias"}) {
      if (object.Has(key)) object.Fail(key, "needs kind \"embeds\" or \"both\"");
    }
    return;
  }
  config.input_adapter = object.Enum<InputAdapter>("adapter");
  config.input_width = object.Integer("width", 1, kMaxWidth, config.hidden_size);
  config.input_adapter_bias = object.Boolean("bias", false);
  if (config.input_adapter_bias && config.input_adapter != InputAdapter::kDense) {
    object.Fail("bias", "needs a dense adapter");
  }
  if (config.input_adapter == InputAdapter::kNone && config.input_width != config.hidden_size) {
    object.Fail("width", absl::StrCat("is ", config.input_width, ", must be hidden_size ",
                                      config.hidden_size, " without an adapter"));
  }
  config.position_wise.input_adapter = config.input_adapter == InputAdapter::kPositionWise;
  if (config.position_wise.input_adapter && config.position_wise.max_positions == 0) {
    object.Fail("adapter", "position_wise needs position_wise.max_positions");
  }
}

void ReadByteTokenizer(ObjectReader& extensions, ModelConfig& config) {
  if (!extensions.Has("tokenizer")) return;
  config.no_tokenizer = extensions.Choice("tokenizer", {"byte", "none"}) == 1;
  if (config.no_tokenizer) return;
  config.byte_tokenizer = true;
  if (config.vocab_size < 256) {
    extensions.Fail("tokenizer", absl::StrCat("byte needs a vocab_size of at least 256, not ",
                                              config.vocab_size));
  }
}

// Refuses extensions in families whose tensor names do not include them.
void RefuseExtensions(ObjectReader& extensions, const ModelConfig& config) {
  if (config.family->takes_extensions) return;
  for (const char* key : {"position_wise", "xsa"}) {
    if (extensions.Has(key)) {
      extensions.Fail(key, absl::StrCat("is not supported for ", config.architecture));
    }
  }
  if (config.input_adapter != InputAdapter::kNone) {
    extensions.Fail(
        "input", absl::StrCat("has an adapter, which is not supported for ", config.architecture));
  }
}

void ReadExtensions(ObjectReader& root, ObjectReader& extensions, ModelConfig& config) {
  if (config.family->explicit_keys) {
    ReadSluice(root, extensions, config);
  } else {
    extensions.AllowOnly({"tokenizer", "input", "position_wise", "xsa", "embedding", "classifier",
                          "position_alignment", "truncate", "long_context", "quantization",
                          "quantization_group", "quantize_head", "kv_dtype"});
  }
  ReadByteTokenizer(extensions, config);
  ReadPositionWise(extensions, config);
  ReadInput(extensions, config);
  ReadXsa(extensions, config);
  RefuseExtensions(extensions, config);
}

// Refuses settings that an exchange of blocks between rows, or SiLU of scores, cannot use.
void CheckMixer(ObjectReader& root, ObjectReader& extensions, const ModelConfig& config) {
  const bool exchange = config.mixer == MixerKind::kExchange;
  if (config.xsa.Any() && (exchange || config.attention_divisor > 0)) {
    extensions.Fail("xsa", "needs the softmax of attention");
  }
  if (!exchange) return;
  if (config.causal) extensions.Fail("mixer", "exchange needs attention.causal false");
  if (config.norm.order != NormOrder::kPre && config.norm.order != NormOrder::kPost) {
    extensions.Fail("mixer", "exchange needs norm.order \"pre\" or \"post\"");
  }
  if (config.parallel_blocks) extensions.Fail("mixer", "exchange needs block \"sequential\"");
  if (config.attention_gate || config.qkv_silu || config.qk_norm || config.query_gain ||
      config.branch_scale || config.positions == PositionKind::kRope || config.window > 0) {
    extensions.Fail("mixer",
                    "exchange has no attention, so it cannot be combined with options of "
                    "attention, rotary positions or a window");
  }
  for (const Projection p : {Projection::kQ, Projection::kK, Projection::kV, Projection::kO}) {
    if (std::ranges::find(config.position_wise.layers[static_cast<int>(p)], true) !=
        config.position_wise.layers[static_cast<int>(p)].end()) {
      extensions.Fail("position_wise",
                      "names a projection of attention, but mixer exchange has no attention");
    }
  }
  if (config.hidden_size % config.heads != 0) {
    root.Fail("hidden_size", absl::StrCat("is ", config.hidden_size, ", must be a multiple of the ",
                                          config.heads, " rows of an exchange"));
  }
  if (config.max_positions != config.heads) {
    extensions.Fail("mixer",
                    absl::StrCat("exchange needs one position for each head, ", config.heads,
                                 "; the maximum number of positions is ", config.max_positions));
  }
}

void CheckRotations(ObjectReader& root, const ModelConfig& config) {
  const int64_t rotations = config.max_positions * config.rotary_dim();
  if (rotations <= kMaxRotations) return;
  root.Fail(
      "max_position_embeddings",
      absl::StrCat("times ", config.rotary_dim() == config.head_dim ? "head_dim" : "positions.dims",
                   " is ", rotations, ", must be at most ", kMaxRotations));
}

// Removes windows that hide no key of any sequence.
void DropIdleWindows(ModelConfig& config) {
  if (config.window < config.max_positions) return;
  config.window = 0;
  config.windowed.clear();
}

bool AnySet(const std::vector<bool>& flags) {
  return std::find(flags.begin(), flags.end(), true) != flags.end();
}

}  // namespace

bool PositionWiseConfig::Any() const {
  return input_adapter || std::any_of(std::begin(layers), std::end(layers), AnySet);
}

bool XsaConfig::Any() const { return AnySet(layers); }

int64_t ModelConfig::rotary_dim() const {
  if (positions != PositionKind::kRope) return 0;
  return rope.dims == 0 ? head_dim : rope.dims;
}

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view text) {
  SLUICE_ASSIGN_OR_RETURN(auto document, ParseJson(text, kMaxConfigDepth));
  if (!document.is_object()) return absl::InvalidArgumentError("is not a JSON object");

  absl::Status status;
  ObjectReader root(document, "", &status);
  const Known known = FindArchitecture(document, root);
  RefuseUnsupported(document, known, root);
  ModelConfig config;
  config.architecture = known.architecture->name;
  config.family = known.family;
  config.has_lm_head = known.architecture->output == OutputKind::kTokens;
  known.family->read(root, config);
  ReadTokens(root, config);
  ReadDType(root, config);
  ObjectReader extensions = root.Object("sluice");
  ReadExtensions(root, extensions, config);
  CheckMixer(root, extensions, config);
  CheckRotations(root, config);
  DropIdleWindows(config);
  config.serving = ReadServing(root, extensions, config, known.architecture->classifier());
  config.quantization = ReadQuantization(extensions);
  config.kv_dtype = extensions.Enum<KvType>("kv_dtype");
  config.stored_quantization = ReadStoredQuantization(root);
  SLUICE_RETURN_IF_ERROR(status);
  return config;
}

}  // namespace sluice
