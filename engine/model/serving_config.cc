#include "engine/model/serving_config.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json_reader.h"
#include "engine/model/config.h"
#include "engine/model/config_reader.h"
#include "engine/model/head_files.h"

namespace sluice {
namespace {

constexpr size_t kMaxLabelBytes = 1024;
constexpr int64_t kMaxLstmLayers = 8;
constexpr int64_t kMaxExtractedWords = 256;

Pooling ReadPooling(ObjectReader& object, Pooling fallback) {
  if (!object.Has("pooling")) return fallback;
  return object.Enum<Pooling>("pooling");
}

ClassifierConfig ReadClassifier(ObjectReader& extensions, const ModelConfig& config) {
  ClassifierConfig classifier;
  if (!extensions.Has("classifier")) return classifier;
  ObjectReader object = extensions.Object("classifier");
  object.AllowOnly({"of", "labels", "pooling", "pooler", "bias"});
  classifier.of_tokens = object.Choice("of", {"rows", "tokens"}) == 1;
  if (classifier.of_tokens) {
    for (const char* const key : {"pooling", "pooler"}) {
      if (object.Has(key)) object.Fail(key, "needs a classifier of rows");
    }
  }
  classifier.labels = object.Integer("labels", 1, kMaxLabels);
  classifier.pooling = config.causal ? Pooling::kLast : Pooling::kCls;
  if (object.Has("pooling")) {
    classifier.pooling = static_cast<Pooling>(object.Choice("pooling", {"mean", "cls", "last"}));
  }
  classifier.pooler = object.Choice("pooler", {"none", "tanh"}) == 1;
  classifier.bias = object.Boolean("bias", true);
  return classifier;
}

std::optional<ExtractionConfig> ReadExtraction(ObjectReader& extensions,
                                               const ModelConfig& config) {
  if (!extensions.Has("extraction")) return std::nullopt;
  ObjectReader object = extensions.Object("extraction");
  object.AllowOnly({"width", "lstm_layers", "max_width", "max_words", "label_marker", "separator",
                    "label_state", "before_labels", "after_labels", "gate", "label_head", "words",
                    "conflicts"});
  ExtractionConfig head;
  head.width = object.Integer("width", 2, kMaxWidth);
  if (head.width % 2 != 0) {
    object.Fail("width", absl::StrCat("is ", head.width, ", must be a multiple of 2"));
  }
  head.lstm_layers = object.Integer("lstm_layers", 0, kMaxLstmLayers, 0);
  head.max_width = object.Integer("max_width", 1, kMaxExtractedWords, 12);
  head.max_words = object.Integer("max_words", 1, kMaxModelPositions, 384);
  head.label_marker = object.String("label_marker", kMaxLabelBytes, "<<ENT>>");
  head.separator =
      object.String("separator", kMaxLabelBytes, head.labels_in_row() ? "<<SEP>>" : "");
  if (head.separator.empty() == head.labels_in_row()) {
    object.Fail("separator", "must be empty if label_marker is empty, and only then");
  }
  head.label_state = object.Enum<LabelState>("label_state");
  head.before_labels = ReadTokenTexts(object, "before_labels");
  head.after_labels = ReadTokenTexts(object, "after_labels");
  head.gate = object.String("gate", kMaxLabelBytes, "");
  if (!head.gate.empty() && std::ranges::count(head.before_labels, head.gate) != 1) {
    object.Fail("gate", "must be one entry of before_labels");
  }
  head.label_head = object.Enum<LabelHeadKind>("label_head");
  for (const char* const key : {"label_state", "before_labels", "after_labels", "gate"}) {
    if (!head.labels_in_row() && object.Has(key)) {
      object.Fail(key, "needs labels in the rows, so label_marker must not be empty");
    }
  }
  head.words = object.Enum<WordKind>("words");
  head.label_by_label = object.Choice("conflicts", {"all", "label"}) == 1;
  if (config.causal) object.Fail("width", "needs a model with attention in both directions");
  return head;
}

// Reads {"0": "name", ..}.
std::vector<std::string> ReadLabelNames(ObjectReader& root) {
  std::vector<std::string> names(root.Size("id2label", 1, kMaxLabels));
  ObjectReader object = root.Object("id2label");
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string key = absl::StrCat(i);
    const nlohmann::json* const name = object.Find(key);
    const bool number = name != nullptr && name->is_number();
    names[i] = number ? name->dump() : object.String(key, kMaxLabelBytes);
  }
  return names;
}

}  // namespace

void ReadLabels(ObjectReader& root, ClassifierConfig& classifier) {
  constexpr int64_t kDefaultLabels = 2;
  classifier.labels = root.Integer("num_labels", 1, kMaxLabels, kDefaultLabels);
  if (root.Has("id2label")) {
    classifier.names = ReadLabelNames(root);
    classifier.labels = std::ssize(classifier.names);
  }
  const int type =
      root.Choice("problem_type", {"single_label_classification", kMultiLabel, "regression"});
  classifier.multi_label = type == 1;
  classifier.regression = type == 2;
  // A cross-encoder of sentence-transformers names its scale here, in two schemas.
  constexpr char kOldKey[] = "sbert_ce_default_activation_function";
  ObjectReader sentence = root.Object("sentence_transformers");
  if (sentence.Has("activation_fn")) {
    classifier.scale = ReadScoreScale(sentence, "activation_fn");
  } else if (root.Has(kOldKey)) {
    classifier.scale = ReadScoreScale(root, kOldKey);
  }
}

const NamedPrompt* ServingConfig::FindPrompt(std::string_view name) const {
  const auto found =
      std::find_if(prompts.begin(), prompts.end(),
                   [name](const NamedPrompt& prompt) { return prompt.name == name; });
  return found == prompts.end() ? nullptr : &*found;
}

const NamedPrompt* ServingConfig::PromptOf(TextTask task) const {
  if (task == TextTask::kQuery) return FindPrompt("query");
  for (const char* const name : {"document", "passage", "corpus"}) {
    if (const NamedPrompt* const prompt = FindPrompt(name)) return prompt;
  }
  return nullptr;
}

std::vector<ModelSetting> SettingsOf(const ModelConfig& config) {
  return SettingsOf(config, config.serving.classifier);
}

std::vector<ModelSetting> SettingsOf(const ModelConfig& config,
                                     const ClassifierConfig& classifier) {
  const ServingConfig& serving = config.serving;
  std::vector<ModelSetting> settings = {{"direction", config.causal ? "causal" : "both"}};
  if (classifier.labels == 0 && !serving.multi_vector && !serving.sparse) {
    const auto name = [](std::string* out, Pooling pooling) {
      absl::StrAppend(out, std::string(NameOf(pooling)));
    };
    settings.push_back({"pooling", absl::StrJoin(serving.pooling.all, ", ", name)});
    settings.push_back({"normalize", serving.normalize ? "true" : "false"});
  }
  settings.push_back(
      {"truncate", std::string(NameOf(serving.truncate.value_or(Truncation::kError)))});
  if (!serving.default_prompt.empty()) {
    settings.push_back({"default_prompt", serving.default_prompt});
  }
  if (!config.warnings.empty()) {
    settings.push_back({"ignored", absl::StrJoin(config.warnings, "; ")});
  }
  return settings;
}

ScoreScale ReadScoreScale(ObjectReader& object, const std::string& key) {
  const std::string path = object.String(key, kMaxLabelBytes);
  const std::string name = path.substr(path.rfind('.') + 1);
  if (path.starts_with("torch.nn.") && name == "Identity") return ScoreScale::kRaw;
  if (path.starts_with("torch.nn.") && name == "Sigmoid") return ScoreScale::kSigmoid;
  if (path.starts_with("torch.nn.") && name == "Softmax") return ScoreScale::kSoftmax;
  object.Fail(key, absl::StrCat("\"", absl::CEscape(path), "\" is not supported"));
  return ScoreScale::kRaw;
}

ServingConfig ReadServing(ObjectReader& root, ObjectReader& extensions, const ModelConfig& config,
                          ClassifierOf classifier) {
  ServingConfig serving;
  ObjectReader embedding = extensions.Object("embedding");
  embedding.AllowOnly({"pooling", "normalize"});
  serving.states_embedding = extensions.Has("embedding");
  serving.pooling = ReadPooling(embedding, config.causal ? Pooling::kLast : Pooling::kMean);
  serving.normalize = embedding.Boolean("normalize", false);
  serving.prompts = config.serving.prompts;
  serving.row_classifier = config.serving.classifier;
  serving.token_classifier = config.serving.token_classifier;
  serving.token_classifier.of_tokens = true;
  serving.classifier = ReadClassifier(extensions, config);
  if (classifier != ClassifierOf::kNothing && !extensions.Has("classifier")) {
    const bool of_tokens = classifier == ClassifierOf::kTokens;
    serving.classifier = of_tokens ? serving.token_classifier : serving.row_classifier;
    ReadLabels(root, serving.classifier);
  }
  serving.alignment = extensions.Enum<PositionAlignment>("position_alignment");
  if (extensions.Has("truncate")) serving.truncate = extensions.Enum<Truncation>("truncate");
  serving.extraction = ReadExtraction(extensions, config);
  if (serving.extraction && !serving.truncate) serving.truncate = Truncation::kRight;
  return serving;
}

}  // namespace sluice
