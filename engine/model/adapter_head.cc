#include "engine/model/adapter_head.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "engine/model/adapter.h"
#include "engine/model/families/family.h"
#include "engine/model/model.h"
#include "engine/model/settings_file.h"

namespace sluice {
namespace {

constexpr char kSavedKey[] = "modules_to_save";
constexpr char kTaskKey[] = "task_type";
constexpr char kLabelsFile[] = "config.json";
constexpr size_t kMaxModules = 64;
constexpr size_t kMaxModuleBytes = 256;

// PEFT lists these for every adapter that classifies sequences or tokens; a model has one of them.
constexpr std::string_view kUsualModules[] = {"classifier", "score"};

absl::StatusOr<std::vector<std::string>> ReadModules(const nlohmann::json& settings) {
  std::vector<std::string> modules;
  const auto found = settings.find(kSavedKey);
  if (found == settings.end() || found->is_null()) return modules;
  const auto valid = [](const nlohmann::json& name) {
    return name.is_string() && name.get_ref<const std::string&>().size() <= kMaxModuleBytes;
  };
  if (!found->is_array() || found->size() > kMaxModules || !std::ranges::all_of(*found, valid)) {
    return absl::InvalidArgumentError(absl::StrCat(kSavedKey, " must be null or a list of up to ",
                                                   kMaxModules, " names of modules"));
  }
  for (const nlohmann::json& name : *found) modules.push_back(name.get<std::string>());
  return modules;
}

bool Classifies(const Model& model, OutputKind output) {
  return std::ranges::any_of(model.config.family->architectures,
                             [&](const Architecture& each) { return each.output == output; });
}

// Returns the layers of the classifier for the adapter's task; nullptr if there is none.
const ClassifierConfig* ClassifierOfTask(const Model& model, const nlohmann::json& settings) {
  const ServingConfig& serving = model.config.serving;
  const auto task = settings.find(kTaskKey);
  const ClassifierConfig* classifier = nullptr;
  if (task == settings.end() || task->is_null()) {
    const bool own = serving.classifier.labels > 0 && !serving.classifier.logits;
    if (own) classifier = &serving.classifier;
  } else if (*task == "SEQ_CLS" && Classifies(model, OutputKind::kScores)) {
    classifier = &serving.row_classifier;
  } else if (*task == "TOKEN_CLS" && Classifies(model, OutputKind::kTokenScores)) {
    classifier = &serving.token_classifier;
  }
  return classifier != nullptr && classifier->supported ? classifier : nullptr;
}

std::vector<std::string> ModulesOf(const ClassifierConfig& classifier) {
  std::vector<std::string> modules;
  if (classifier.pooler) modules.push_back(classifier.pooler_module);
  if (!classifier.norm_module.empty()) modules.push_back(classifier.norm_module);
  modules.push_back(classifier.module);
  return modules;
}

// Returns an error that names the first module that is not one of `known`, with or without the
// prefix, or a part of its name.
absl::Status CheckModules(const std::vector<std::string>& listed,
                          const std::vector<std::string>& known, const std::string& prefix) {
  for (const std::string& name : listed) {
    const std::string part =
        absl::StrCat(".", name.substr(name.starts_with(prefix) ? prefix.size() : 0), ".");
    const auto has = [&](const std::string& module) {
      return absl::StrCat(".", module, ".").find(part) != std::string::npos;
    };
    if (std::ranges::count(kUsualModules, name) > 0 || std::ranges::any_of(known, has)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(kSavedKey, " has \"", absl::CEscape(name),
                     "\", which is not supported; an adapter of this model may save: ",
                     absl::StrJoin(known, ", ")));
  }
  return absl::OkStatus();
}

// Returns the number of rows of the saved scores, or nullopt if they are not saved.
absl::StatusOr<std::optional<int64_t>> SavedLabels(const Model& model, const std::string& module,
                                                   const Checkpoint& saved) {
  for (const std::string& prefix :
       {std::string(model.config.family->names.prefix), std::string()}) {
    const std::string name = absl::StrCat(kAdapterRoot, prefix, module, ".weight");
    if (!saved.Lists(name)) continue;
    const auto found = saved.tensors().find(name);
    if (found == saved.tensors().end()) return saved.Find(name, {}).status();
    const std::vector<int64_t>& shape = found->second.shape;
    if (shape.size() == 2 && shape[0] >= 1 && shape[0] <= kMaxLabels) return shape[0];
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", name, " has shape [", absl::StrJoin(shape, ", "), "], must be [labels, ",
        model.config.hidden_size, "] with 1 to ", kMaxLabels, " labels"));
  }
  return std::nullopt;
}

bool SameLayers(const ClassifierConfig& a, const ClassifierConfig& b) {
  return a.of_tokens == b.of_tokens && a.module == b.module;
}

// Reads the names of the labels from the adapter's config.json. Without it, they are the names of
// the model's own classifier if that has the same number of labels.
absl::Status ReadNames(const Model& model, const Directory& folder, ClassifierConfig* classifier) {
  const int64_t labels = classifier->labels;
  const ClassifierConfig& own = model.config.serving.classifier;
  if (!folder.Has(kLabelsFile)) {
    if (SameLayers(own, *classifier) && own.labels == labels) *classifier = own;
    return absl::OkStatus();
  }
  SLUICE_ASSIGN_OR_RETURN(const nlohmann::json document, ReadSettings(folder, kLabelsFile));
  absl::Status status;
  ObjectReader root(document, "", &status);
  ReadLabels(root, *classifier);
  const char* const key = root.Has("id2label") ? "id2label" : "num_labels";
  if (root.Has(key) && classifier->labels != labels) {
    root.Fail(key, absl::StrCat("has ", classifier->labels, " labels; the adapter's module ",
                                classifier->module, " has ", labels));
  }
  classifier->labels = labels;
  return status.ok() ? status : OfFile(kLabelsFile, status);
}

}  // namespace

absl::StatusOr<std::optional<AdapterHead>> ReadAdapterHead(const Model& model,
                                                           const Directory& folder,
                                                           const nlohmann::json& settings,
                                                           const Checkpoint& saved) {
  const absl::StatusOr<std::vector<std::string>> listed = ReadModules(settings);
  if (!listed.ok()) return OfFile(kAdapterConfigFile, listed.status());
  if (listed->empty()) return std::nullopt;
  const ClassifierConfig* const layers = ClassifierOfTask(model, settings);
  if (layers == nullptr) {
    return OfFile(kAdapterConfigFile,
                  absl::InvalidArgumentError(
                      absl::StrCat(kSavedKey, " has \"", absl::CEscape(listed->front()),
                                   "\", which is not supported: only classifiers may be saved, ",
                                   kTaskKey, " must be \"SEQ_CLS\" or \"TOKEN_CLS\", and ",
                                   "Sluice must support that classifier for this model")));
  }
  SLUICE_RETURN_IF_ERROR(
      OfFile(kAdapterConfigFile,
             CheckModules(*listed, ModulesOf(*layers), model.config.family->names.prefix)));
  auto config = std::make_shared<ClassifierConfig>(*layers);
  const auto labels = SavedLabels(model, layers->module, saved);
  if (!labels.ok()) return OfFile(kAdapterWeightsFile, labels.status());
  const ClassifierConfig& own = model.config.serving.classifier;
  config->labels = *labels ? **labels : SameLayers(own, *layers) ? own.labels : 0;
  if (config->labels == 0) {
    return OfFile(kAdapterWeightsFile,
                  absl::InvalidArgumentError(absl::StrCat(
                      "tensor ", kAdapterRoot, layers->module, ".weight is missing; list ",
                      layers->module, " in ", kSavedKey, " when you train the adapter")));
  }
  SLUICE_RETURN_IF_ERROR(ReadNames(model, folder, config.get()));
  const SavedModules modules{.checkpoint = saved, .prefix = std::string(kAdapterRoot)};
  auto classifier = Classifier::Find(model.config, *config, model.checkpoint, &modules);
  if (!classifier.ok()) return OfFile(kAdapterWeightsFile, classifier.status());
  return AdapterHead{std::move(config), *std::move(classifier)};
}

}  // namespace sluice
