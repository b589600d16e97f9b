#include "engine/model/config.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/model/config_keys.h"
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr int kMaxConfigDepth = 16;
// The limit for the values of a table by position: 1 GiB of cosines and sines, or of biases.
constexpr int64_t kMaxTableValues = int64_t{1} << 28;
constexpr size_t kMaxEosTokens = 256;
constexpr size_t kMaxNameBytes = 256;

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
                                             {"num_experts_per_tok", nullptr},
                                             {"num_local_experts", nullptr},
                                             {"partial_rotary_factor", 1.0},
                                             {"position_embedding_type", "absolute"},
                                             {"pruned_heads", json::object()},
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
  bool by_model_type = false;  // the document names no architectures
};

// Returns the architecture that serves the states of a model type, if there is one.
std::optional<Known> BaseModelOf(const json& model_type) {
  for (const ModelFamily* const family : AllFamilies()) {
    for (const Architecture& known : family->architectures) {
      if (known.output == OutputKind::kStates && model_type == known.model_type) {
        return Known{family, &known, true};
      }
    }
  }
  return std::nullopt;
}

// Returns the class that auto_map names for embeddings, if it is code of the hub or a class of the
// family that projects its states. transformers then loads that class, whichever class
// `architectures` names.
std::optional<Known> ModelOfHubCode(ObjectReader& root, const ModelFamily& own) {
  const json* const map = root.Find("auto_map");
  if (map == nullptr || !map->is_object() || !map->contains("AutoModel")) return std::nullopt;
  const json& model = (*map)["AutoModel"];
  if (!model.is_string()) return std::nullopt;
  for (const ModelFamily* const family : AllFamilies()) {
    for (const Architecture& known : family->architectures) {
      const bool projects = known.output == OutputKind::kProjectedStates && family == &own;
      if ((known.of_hub || projects) &&
          model.get_ref<const std::string&>().ends_with(absl::StrCat(".", known.name))) {
        return Known{family, &known};
      }
    }
  }
  return std::nullopt;
}

// Returns the number of insertions, deletions and replacements of characters between two names
// (Wagner and Fischer, 1974).
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);  // the distances of a prefix of a to each prefix of b
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// Returns the first architecture of the list in the document that Sluice knows. A document without
// such a list describes the base model of its model type, as in transformers.
Known FindArchitecture(ObjectReader& root) {
  const json* const list = root.Find("architectures");
  const json named = list != nullptr && list->is_array() ? *list : json::array();
  if (const json* const type = root.Find("model_type");
      type != nullptr && (list == nullptr || *list == json::array())) {
    if (const std::optional<Known> base = BaseModelOf(*type)) return *base;
  }
  std::string first;
  for (const json& name : named) {
    if (!name.is_string()) continue;
    if (first.empty()) first = name.get_ref<const std::string&>().substr(0, kMaxNameBytes);
    for (const ModelFamily* const family : AllFamilies()) {
      for (const Architecture& known : family->architectures) {
        if (name != known.name) continue;
        return ModelOfHubCode(root, *family).value_or(Known{family, &known});
      }
    }
  }
  const json* const type = root.Find("model_type");
  if (first.starts_with("GLiNER") || (type != nullptr && *type == "extractor")) {
    root.Fail("architectures",
              "names a GLiNER model, which must be converted. Run python tools/convert FOLDER "
              "NEW_FOLDER in Sluice's repository, and serve the new folder");
    return {&kLlamaFamily, &kLlamaFamily.architectures[0]};
  }
  std::string_view closest;
  for (const ModelFamily* const family : AllFamilies()) {
    for (const Architecture& known : family->architectures) {
      if (closest.empty() || EditDistance(first, known.name) < EditDistance(first, closest)) {
        closest = known.name;
      }
    }
  }
  // Without this limit, every name would have a most similar one.
  const bool similar = EditDistance(first, closest) * 3 <= first.size();
  root.Fail("architectures",
            first.empty()
                ? std::string("has no supported architecture; docs/models.md lists all")
                : absl::StrCat("has no supported architecture: \"", absl::CEscape(first),
                               "\" is not one; ", similar ? "the most similar one is " : "",
                               similar ? std::string(closest) + ", and " : "",
                               "docs/models.md lists all"));
  return {&kLlamaFamily, &kLlamaFamily.architectures[0]};
}

// Refuses keys that change a result in a way that Sluice does not support.
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
  for (const auto& [name, value] : document.items()) {
    const std::string key(KeyOfAlias(known.architecture->model_type, name));
    if (key.empty() || (root.Has(key) ? document[key] == value : own(name))) continue;
    root.Fail(name, absl::StrCat("is another name of ", key, ", which is absent or differs; use ",
                                 key, " only"));
  }
  const Architecture& architecture = *known.architecture;
  if (root.Has("model_type") && document["model_type"] != architecture.model_type) {
    root.Fail("model_type", absl::StrCat("is not supported, must be \"", architecture.model_type,
                                         "\" for ", architecture.name));
  }
  if (own("layer_types") || !root.Has("layer_types")) return;
  for (const json& type : document["layer_types"]) {
    if (type != "full_attention") root.Fail("layer_types", "has a type other than full_attention");
  }
}

void ReadDType(ObjectReader& root, ModelConfig& config) {
  constexpr int kBfloat16 = 2;
  for (const char* const key : {"torch_dtype", "dtype"}) {
    config.stored_in_bf16 |=
        root.Choice(key, {"float32", "float16", "bfloat16", "auto"}) == kBfloat16;
  }
}

void ReadTokens(ObjectReader& root, ModelConfig& config) {
  const std::vector<int32_t> bos = ReadTokenIds(root, "bos_token_id", 1, config);
  if (!bos.empty()) config.bos_token_id = bos[0];
  config.eos_token_ids = ReadTokenIds(root, "eos_token_id", kMaxEosTokens, config);
}

// Decoders compute attention in both directions if is_causal is false. A window then ends after
// `sliding_window` tokens on both sides, as in transformers.
void ReadDirection(ObjectReader& root, ModelConfig& config) {
  const bool causal = root.Boolean("is_causal", config.causal);
  if (causal == config.causal) return;
  if (causal || config.attention_divisor > 0) {
    root.Fail("is_causal",
              absl::StrCat("is not supported, must be ", config.causal ? "true" : "false", " for ",
                           config.architecture));
  } else if (config.family->explicit_keys) {
    root.Fail("is_causal", "is not a key of this architecture; set sluice.attention.causal");
  }
  SetBidirectional(config);
}

// Adds warnings about keys of the file that have no effect.
void WarnAboutKeys(ObjectReader& root, const Known& known, ModelConfig& config) {
  if (root.Has("auto_map")) {
    config.warnings.push_back(absl::StrCat(
        "config.json: auto_map names code of this model; Sluice does not run it and computes ",
        config.architecture, " as transformers does"));
  }
  if (known.by_model_type) {
    config.warnings.push_back(absl::StrCat(
        "config.json names no architectures; the model serves the states of ", config.architecture,
        ", the base model of its model_type. To serve another output of the weights, add it, for "
        "example \"architectures\": [\"",
        known.family->architectures[0].name, "\"]"));
  }
  std::vector<std::string> unknown;
  for (const std::string& key : root.Unread()) {
    // Only classifiers read the key of sentence-transformers.
    if (key == "sentence_transformers") continue;
    const auto idle = known.family->idle_keys;
    if (std::ranges::find(idle, key) != idle.end()) continue;
    if (std::ranges::any_of(known.family->architectures, [&](const Architecture& each) {
          return IsKeyOfClass(each.model_type, key);
        })) {
      continue;
    }
    unknown.push_back(absl::CEscape(key.substr(0, kMaxNameBytes)));
  }
  WarnAboutUnknown(unknown, "", config);
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
  if (config.embedding_width > 0) {
    object.Fail("kind", "must be \"ids\", because a dense layer maps the embedding");
  }
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
                          "extraction", "position_alignment", "truncate", "long_context",
                          "quantization", "quantization_group", "quantize_head", "kv_dtype"});
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

// Refuses settings for which the order or the scale of rotated features matters.
void CheckRotatedHeads(ObjectReader& root, ObjectReader& extensions, const ModelConfig& config) {
  const auto any = [&](Projection p) {
    const std::vector<bool>& layers = config.position_wise.layers[static_cast<int>(p)];
    return std::ranges::find(layers, true) != layers.end();
  };
  if (config.rope.neighbours && (any(Projection::kQ) || any(Projection::kK))) {
    extensions.Fail("position_wise", "names q or k; this needs positions.neighbours false");
  }
  if (config.rope.neighbours && config.disentangled.span > 0) {
    extensions.Fail("attention", "has disentangled; this needs positions.neighbours false");
  }
  if (!config.qk_norm || config.qk_norm_weight != QkNormWeight::kRotated) return;
  if (config.rope.attention_factor != 1) {
    root.Fail("rope_scaling", "scales the norms of queries and keys; use another rope_type");
  }
  if (config.rope.neighbours || config.norm.unit_offset) {
    extensions.Fail("attention",
                    "has qk_norm_weight \"rotated\"; this needs positions.neighbours and "
                    "norm.unit_offset false");
  }
}

// Refuses position-wise projections of an MLP that experts replace.
void CheckExperts(ObjectReader& extensions, const ModelConfig& config) {
  for (const Projection p : {Projection::kGate, Projection::kUp, Projection::kDown}) {
    const std::vector<bool>& layers = config.position_wise.layers[static_cast<int>(p)];
    for (int64_t layer = 0; layer < std::ssize(layers); ++layer) {
      if (!layers[layer] || !config.experts.in(layer)) continue;
      return extensions.Fail(
          "position_wise",
          absl::StrCat("names a projection of the MLP of layer ", layer, ", which has experts"));
    }
  }
}

void CheckRotations(ObjectReader& root, const ModelConfig& config) {
  const int64_t rotations = config.max_positions * config.rotary_dim();
  if (rotations <= kMaxTableValues) return;
  root.Fail(
      "max_position_embeddings",
      absl::StrCat("times ", config.rotary_dim() == config.head_dim ? "head_dim" : "positions.dims",
                   " is ", rotations, ", must be at most ", kMaxTableValues));
}

// The table has a bias for each head and each distance in both directions; see BiasByDistance.
void CheckBiases(ObjectReader& root, const ModelConfig& config) {
  if (config.relative_bias.buckets == 0 && !config.relative_bias.alibi) return;
  const int64_t biases = 2 * config.max_positions * config.heads;
  if (biases <= kMaxTableValues) return;
  root.Fail(root.Has("n_positions") ? "n_positions" : "max_position_embeddings",
            absl::StrCat("times 2 times the ", config.heads, " heads is ", biases,
                         ", must be at most ", kMaxTableValues, " for a bias by distance"));
}

// Removes windows that hide no key of any sequence. Their layers keep rotary positions of their
// own.
void DropIdleWindows(ModelConfig& config) {
  if (config.window < config.max_positions) return;
  config.window = 0;
  if (!config.local_rope) config.windowed.clear();
}

bool AnySet(const std::vector<bool>& flags) {
  return std::find(flags.begin(), flags.end(), true) != flags.end();
}

// The size of the vectors is in another file (engine/model/head_files.h).
void UseVectors(ModelConfig& config) {
  ServingConfig& serving = config.serving;
  serving.multi_vector = serving.normalize = serving.states_embedding = true;
  serving.vectors = TokenHeadConfig{.dense = {{.in = config.hidden_size,
                                               .out = config.hidden_size,
                                               .bias = false,
                                               .function = DenseFunction::kIdentity}}};
}

// The two scores of a token need no names in the file.
void UseAnswers(ObjectReader& root, ModelConfig& config) {
  ClassifierConfig& classifier = config.serving.classifier;
  if (!classifier.pooler) classifier.module = "qa_outputs";
  classifier.names = {"start", "end"};
  if (classifier.labels != 2) {
    root.Fail("num_labels",
              absl::StrCat("is ", classifier.labels, ", must be 2 for ", config.architecture));
  }
}

// The dense layer has a row for each label of the config, which need no names.
void ReadProjection(ObjectReader& root, ModelConfig& config) {
  const bool listed = !root.Has("num_labels") && root.Has("id2label");
  if (!listed && !root.Has("num_labels")) return;
  const int64_t out = listed ? static_cast<int64_t>(root.Size("id2label", 1, kMaxWidth))
                             : root.Integer("num_labels", 1, kMaxWidth);
  config.serving.dense = {
      {.in = config.hidden_size, .out = out, .bias = false, .function = DenseFunction::kIdentity}};
}

// Replaces the document of a model that also reads images by its text_config, with the keys of the
// document that belong to all of it.
absl::Status TakeTextConfig(json* document, Known* known) {
  const auto found = document->find("text_config");
  if (found == document->end() || !found->is_object()) {
    return absl::InvalidArgumentError("text_config is missing or not an object");
  }
  json text = *found;
  const json type = text.contains("model_type") ? text["model_type"] : json();
  const std::string served = absl::StrCat(" ", known->architecture->text, " ");
  std::optional<Known> inner;
  for (const ModelFamily* const family : AllFamilies()) {
    for (const Architecture& each : family->architectures) {
      if (each.output != known->architecture->output || type != each.model_type) continue;
      if (served.find(absl::StrCat(" ", each.model_type, " ")) == std::string::npos) continue;
      if (!inner) inner = Known{family, &each};
    }
  }
  if (!inner) {
    return absl::InvalidArgumentError(
        absl::StrCat("text_config.model_type is not supported for ", known->architecture->name,
                     ", must be one of: ", known->architecture->text));
  }
  for (const char* const key : {"sluice", "bos_token_id", "eos_token_id", "pad_token_id", "dtype",
                                "torch_dtype", "quantization_config", "tie_word_embeddings"}) {
    if (document->contains(key)) text[key] = (*document)[key];
  }
  const json defaults = json::parse(inner->family->text_defaults);
  for (const auto& [key, value] : defaults.items()) {
    const bool rope = key.starts_with("rope") && text.contains("rope_parameters");
    if (!text.contains(key) && !rope) text[key] = value;
  }
  text.erase("architectures");
  *document = std::move(text);
  *known = *inner;
  return absl::OkStatus();
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
  ObjectReader whole(document, "", &status);
  Known known = FindArchitecture(whole);
  const Architecture& named = *known.architecture;
  ModelConfig config;
  config.architecture = named.name;
  if (*named.text != '\0') {
    SLUICE_RETURN_IF_ERROR(status);
    SLUICE_RETURN_IF_ERROR(TakeTextConfig(&document, &known));
    config.weights_part = "language_model.";
    config.warnings.push_back(absl::StrCat("config.json names ", named.name,
                                           "; the model serves texts only, without images"));
  }
  ObjectReader root(document, "", &status);
  RefuseUnsupported(document, known, root);
  config.family = known.family;
  config.has_lm_head = known.architecture->output == OutputKind::kTokens;
  known.family->read(root, config);
  ReadDirection(root, config);
  ReadTokens(root, config);
  ReadDType(root, config);
  ObjectReader extensions = root.Object("sluice");
  ReadExtensions(root, extensions, config);
  CheckMixer(root, extensions, config);
  CheckExperts(extensions, config);
  CheckRotations(root, config);
  CheckBiases(root, config);
  CheckRotatedHeads(root, extensions, config);
  DropIdleWindows(config);
  config.serving = ReadServing(root, extensions, config, known.architecture->classifier());
  if (named.output == OutputKind::kVectors) UseVectors(config);
  if (named.output == OutputKind::kAnswers) UseAnswers(root, config);
  if (named.output == OutputKind::kProjectedStates) ReadProjection(root, config);
  config.quantization = ReadQuantization(extensions);
  config.kv_dtype = extensions.Enum<KvType>("kv_dtype");
  config.stored_quantization = ReadStoredQuantization(root);
  WarnAboutKeys(root, known, config);
  SLUICE_RETURN_IF_ERROR(status);
  return config;
}

}  // namespace sluice
