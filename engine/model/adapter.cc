#include "engine/model/adapter.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error_at.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "engine/model/families/family.h"
#include "engine/model/model.h"
#include "engine/model/repository.h"
#include "engine/model/settings_file.h"

namespace sluice {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kMatrixA = ".lora_A.weight", kMatrixB = ".lora_B.weight";
constexpr double kMaxAlpha = 65536;

// Keys that change no result of a trained adapter. The tensors show which modules it changes.
constexpr std::string_view kIgnoredKeys[] = {"auto_mapping",
                                             "base_model_name_or_path",
                                             "corda_config",
                                             "eva_config",
                                             "exclude_modules",
                                             "fan_in_fan_out",
                                             "inference_mode",
                                             "layers_pattern",
                                             "layers_to_transform",
                                             "loftq_config",
                                             "lora_dropout",
                                             "megatron_core",
                                             "peft_version",
                                             "qalora_group_size",
                                             "revision",
                                             "runtime_config",
                                             "target_modules"};

// Keys that are checked by value.
constexpr std::string_view kReadKeys[] = {
    "peft_type",         "r",         "lora_alpha",     "use_rslora", "bias",
    "init_lora_weights", "task_type", "modules_to_save"};

// Returns whether a value leaves its feature out.
bool IsOff(const nlohmann::json& value) {
  return value.is_null() || value == false || (value.is_string() && value == "") ||
         ((value.is_array() || value.is_object()) && value.empty());
}

// Fails if the base model of the adapter is not the model itself: such an initialisation takes a
// part of the weights out of the model.
void CheckInitialisation(ObjectReader& config) {
  const nlohmann::json* const value = config.Find("init_lora_weights");
  if (value == nullptr || value->is_boolean()) return;
  for (const char* const same : {"gaussian", "eva", "orthogonal"}) {
    if (*value == same) return;
  }
  config.Fail("init_lora_weights",
              "is not supported, because it changes the weights of the model; convert the adapter "
              "to a plain LoRA with PEFT's path_initial_model_for_weight_conversion");
}

struct Settings {
  int64_t rank = 1;
  double scale = 0;
};

absl::StatusOr<Settings> ReadSettingsOf(const nlohmann::json& document) {
  absl::Status status;
  ObjectReader config(document, "", &status);
  if (config.String("peft_type", 64) != "LORA") config.Fail("peft_type", "must be \"LORA\"");
  if (config.String("bias", 64, "none") != "none") {
    config.Fail("bias", "is not supported, must be \"none\"");
  }
  CheckInitialisation(config);
  for (const auto& [key, value] : document.items()) {
    if (std::ranges::count(kIgnoredKeys, key) + std::ranges::count(kReadKeys, key) > 0) continue;
    if (!IsOff(value)) {
      config.Fail(absl::CEscape(key.substr(0, 64)),
                  "is not supported; it must be absent, null, false or empty");
    }
  }
  Settings settings = {.rank = config.Integer("r", 1, kMaxAdapterRank)};
  const double alpha = config.Number("lora_alpha", 0, kMaxAlpha);
  const auto rank = static_cast<double>(settings.rank);
  settings.scale = alpha / (config.Boolean("use_rslora", false) ? std::sqrt(rank) : rank);
  if (!status.ok()) return status;
  return settings;
}

std::string_view WithoutPrefix(std::string_view name, std::string_view prefix) {
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  return name;
}

// The dense layers of a graph by the names of their modules, without the family's prefix.
class DenseLayers {
 public:
  explicit DenseLayers(const Model& model) : prefix_(model.config.family->names.prefix) {
    for (size_t i = 0; i < model.graph.ops.size(); ++i) {
      if (const auto* linear = std::get_if<LinearOp>(&model.graph.ops[i])) Add(i, *linear);
      if (const auto* attention = std::get_if<AttentionOp>(&model.graph.ops[i])) Share(*attention);
    }
    for (const std::string& module : shared_) ops_.erase(module);
  }

  // Returns the ops whose matrices are parts of the module's, or nullptr.
  const std::vector<size_t>* Find(std::string_view module) const {
    const auto found = ops_.find(std::string(WithoutPrefix(module, prefix_)));
    return found == ops_.end() ? nullptr : &found->second;
  }

  // Returns the last parts of the modules' names.
  std::string Kinds() const {
    std::set<std::string> kinds;
    for (const auto& [module, unused] : ops_) kinds.insert(module.substr(module.rfind('.') + 1));
    return absl::StrJoin(kinds, ", ");
  }

 private:
  std::string ModuleOf(const LinearOp& op) const {
    std::string_view name = op.weight.name;
    if (name.ends_with(kWeight)) name.remove_suffix(kWeight.size());
    return std::string(WithoutPrefix(name, prefix_));
  }

  void Add(size_t index, const LinearOp& op) {
    if (op.adaptable()) ops_[ModuleOf(op)].push_back(index);
  }

  // Leaves out layers that also compute the tables of relative positions, which all requests share.
  void Share(const AttentionOp& op) {
    if (!op.relative) return;
    for (const std::optional<LinearOp>& table : {op.relative->keys, op.relative->queries}) {
      if (table) shared_.insert(ModuleOf(*table));
    }
  }

  const std::string_view prefix_;
  std::map<std::string, std::vector<size_t>> ops_;
  std::set<std::string> shared_;
};

// Returns the part of B, [all outputs, rank], that belongs to the outputs of a dense layer.
TensorPart PartOfB(std::string name, const LinearOp& op, int64_t rank) {
  const TensorPart& weight = op.weight;
  const bool in_out = op.layout == MatrixLayout::kInOut;
  const int64_t each = in_out ? 1 : weight.shape[1];  // elements of the weight for each output
  return {.name = std::move(name),
          .shape = {weight.shape[in_out ? 1 : 0], rank},
          .first = weight.first / each * rank,
          .run = weight.run / each * rank,
          .stride = weight.stride / each * rank,
          .evens_first = weight.evens_first};
}

absl::Status InFile(const char* file, const std::string& fault) {
  return ErrorAt(file, absl::InvalidArgumentError(fault));
}

// Returns the module of a tensor, or an error that names the tensor.
absl::StatusOr<std::string> ModuleOfTensor(std::string_view tensor, const DenseLayers& layers) {
  const bool a = tensor.ends_with(kMatrixA), b = tensor.ends_with(kMatrixB);
  const std::string shown = absl::CEscape(std::string(tensor.substr(0, 255)));
  if (!tensor.starts_with(kAdapterRoot) || a == b) {
    return InFile(kAdapterWeightsFile, absl::StrCat("tensor ", shown,
                                                    " is not supported; expected names "
                                                    "base_model.model.MODULE.lora_A.weight and "
                                                    "lora_B.weight"));
  }
  tensor.remove_prefix(std::string_view(kAdapterRoot).size());
  tensor.remove_suffix(kMatrixA.size());
  if (layers.Find(tensor) == nullptr) {
    return InFile(kAdapterWeightsFile, absl::StrCat("tensor ", shown,
                                                    " belongs to no layer that an adapter of this "
                                                    "model can change; these are: ",
                                                    layers.Kinds()));
  }
  return std::string(tensor);
}

// The transform before the model's head is not a layer of a model with a classifier, but it may
// have the name of the classifier's own layer.
absl::Status CheckBelowHead(const Model& model, const std::string& tensor,
                            const std::string& module) {
  const TensorNames& names = model.config.family->names;
  if (WithoutPrefix(module, names.prefix) != names.head_dense) return absl::OkStatus();
  return InFile(kAdapterWeightsFile,
                absl::StrCat("tensor ", absl::CEscape(tensor),
                             " changes a layer of the classifier, which is not supported; exclude ",
                             "the module ", module, " or save it with modules_to_save"));
}

absl::StatusOr<std::vector<AdapterLayer>> FindLayers(const Model& model, const Adapter& adapter) {
  const DenseLayers dense(model);
  std::set<std::string> modules;
  const std::vector<std::string> of_head =
      adapter.head ? adapter.head->classifier.saved_tensors() : std::vector<std::string>();
  for (const std::string& tensor : adapter.checkpoint.Names()) {
    if (std::ranges::count(of_head, tensor) > 0) continue;
    SLUICE_ASSIGN_OR_RETURN(std::string module, ModuleOfTensor(tensor, dense));
    if (adapter.head) SLUICE_RETURN_IF_ERROR(CheckBelowHead(model, tensor, module));
    modules.insert(std::move(module));
  }
  std::map<size_t, AdapterLayer> layers;
  for (const std::string& module : modules) {
    const std::string name = absl::StrCat(kAdapterRoot, module);
    for (const size_t index : *dense.Find(module)) {
      const auto& op = std::get<LinearOp>(model.graph.ops[index]);
      AdapterLayer layer = {
          .op = index,
          .a = {.name = absl::StrCat(name, std::string(kMatrixA)),
                .shape = {adapter.rank, model.graph.buffers[op.in].width}},
          .b = PartOfB(absl::StrCat(name, std::string(kMatrixB)), op, adapter.rank)};
      for (const TensorPart& part : {layer.a, layer.b}) {
        const absl::Status found = adapter.checkpoint.Find(part.name, part.shape).status();
        if (!found.ok()) return InFile(kAdapterWeightsFile, std::string(found.message()));
      }
      if (!layers.emplace(index, std::move(layer)).second) {
        return InFile(kAdapterWeightsFile,
                      absl::StrCat("module ", absl::CEscape(module),
                                   " is there with and without the prefix of the "
                                   "model's names"));
      }
    }
  }
  if (layers.empty() && !adapter.head) return InFile(kAdapterWeightsFile, "it has no tensors");
  std::vector<AdapterLayer> ordered;
  ordered.reserve(layers.size());
  for (auto& [index, layer] : layers) ordered.push_back(std::move(layer));
  return ordered;
}

absl::StatusOr<std::shared_ptr<const Adapter>> Read(const std::string& name, const Model& model,
                                                    const Directory& folder, FileAccess access) {
  if (!folder.Has(kAdapterConfigFile)) {
    return absl::NotFoundError(absl::StrCat(kAdapterConfigFile, " is missing"));
  }
  if (!folder.Has(kAdapterWeightsFile)) {
    return absl::NotFoundError(absl::StrCat(
        kAdapterWeightsFile, " is missing; save the adapter with safe_serialization=True"));
  }
  SLUICE_ASSIGN_OR_RETURN(const nlohmann::json document, ReadSettings(folder, kAdapterConfigFile));
  const absl::StatusOr<Settings> settings = ReadSettingsOf(document);
  if (!settings.ok()) return OfFile(kAdapterConfigFile, settings.status());
  auto adapter = std::make_shared<Adapter>();
  adapter->name = name;
  adapter->rank = settings->rank;
  adapter->scale = static_cast<float>(settings->scale);
  SLUICE_ASSIGN_OR_RETURN(adapter->checkpoint,
                          Checkpoint::OpenFile(folder, kAdapterWeightsFile, access));
  adapter->checkpoint.SetOwner(absl::StrCat("adapter ", name, " of model ", model.name));
  SLUICE_ASSIGN_OR_RETURN(adapter->head,
                          ReadAdapterHead(model, folder, document, adapter->checkpoint));
  SLUICE_ASSIGN_OR_RETURN(adapter->layers, FindLayers(model, *adapter));
  return adapter;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Adapter>> LoadAdapter(const std::string& name,
                                                           const Model& model,
                                                           const Directory& folder,
                                                           FileAccess access) {
  auto adapter = Read(name, model, folder, access);
  if (adapter.ok()) return adapter;
  return absl::Status(adapter.status().code(),
                      absl::StrCat("adapter ", name, ": ", adapter.status().message()));
}

AdapterSource SourceOf(const std::string& name, const Model* model,
                       std::shared_ptr<const Directory> folder, FileAccess access) {
  const auto read = [=]() -> absl::StatusOr<std::shared_ptr<const Adapter>> {
    const absl::StatusOr<Directory> own = folder->OpenFolder(name);
    if (own.ok()) return LoadAdapter(name, *model, *own, access);
    return absl::Status(own.status().code(),
                        absl::StrCat("adapter ", name, ": ", own.status().message()));
  };
  return {name, read};
}

absl::StatusOr<std::vector<std::string>> ListAdapters(const Directory& folder) {
  SLUICE_ASSIGN_OR_RETURN(std::vector<std::string> names, folder.List(2 * kMaxAdapters));
  std::erase_if(names, [&](const std::string& name) {
    return name.front() == '.' || !folder.OpenFolder(name).ok();
  });
  for (const std::string& name : names) {
    if (IsRepositoryName(name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("\"", absl::CHexEscape(name),
                     "\" is not a valid name of an adapter; expected 1 to 128 of the characters "
                     "A-Z a-z 0-9 _ . -"));
  }
  if (names.size() > kMaxAdapters) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", names.size(), " adapters; the limit is ", kMaxAdapters));
  }
  return names;
}

}  // namespace sluice
