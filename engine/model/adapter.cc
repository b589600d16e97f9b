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
constexpr std::string_view kEmbeddingA = ".lora_embedding_A", kEmbeddingB = ".lora_embedding_B";

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
  const double alpha = config.Number("lora_alpha", 0, kMaxAdapterAlpha);
  const auto rank = static_cast<double>(settings.rank);
  settings.scale = alpha / (config.Boolean("use_rslora", false) ? std::sqrt(rank) : rank);
  if (!status.ok()) return status;
  return settings;
}

std::string_view WithoutPrefix(std::string_view name, std::string_view prefix) {
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  return name;
}

// The dense layers and embeddings of a graph that adapters may change, by the names of their
// modules, without the family's prefix.
class DenseLayers {
 public:
  explicit DenseLayers(const Model& model) : prefix_(model.config.family->names.prefix) {
    for (size_t i = 0; i < model.graph.ops.size(); ++i) {
      if (const auto* linear = std::get_if<LinearOp>(&model.graph.ops[i])) {
        Add(i, linear->weight, linear->adaptable());
      }
      if (const auto* embedding = std::get_if<EmbedOp>(&model.graph.ops[i])) {
        Add(i, embedding->table, embedding->adaptable());
      }
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
  std::string ModuleOf(const TensorPart& weight) const {
    std::string_view name = weight.name;
    if (name.ends_with(kWeight)) name.remove_suffix(kWeight.size());
    return std::string(WithoutPrefix(name, prefix_));
  }

  void Add(size_t index, const TensorPart& weight, bool adaptable) {
    if (adaptable) ops_[ModuleOf(weight)].push_back(index);
  }

  // Leaves out layers that also compute the tables of relative positions, which all requests share.
  void Share(const AttentionOp& op) {
    if (!op.relative) return;
    for (const std::optional<LinearOp>& table : {op.relative->keys, op.relative->queries}) {
      if (table) shared_.insert(ModuleOf(table->weight));
    }
  }

  const std::string_view prefix_;
  std::map<std::string, std::vector<size_t>> ops_;
  std::set<std::string> shared_;
};

bool IsEmbedding(const Model& model, size_t op) {
  return std::holds_alternative<EmbedOp>(model.graph.ops[op]);
}

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

// Returns the end of the tensor's name after the module; empty if it has none of the known ones.
std::string_view EndOf(std::string_view tensor) {
  for (const std::string_view end : {kMatrixA, kMatrixB, kEmbeddingA, kEmbeddingB}) {
    if (tensor.ends_with(end)) return end;
  }
  return {};
}

// Returns the module of a tensor, or an error that names the tensor.
absl::StatusOr<std::string> ModuleOfTensor(const Model& model, std::string_view tensor,
                                           const DenseLayers& layers) {
  const std::string_view end = EndOf(tensor);
  const std::string shown = absl::CEscape(std::string(tensor.substr(0, 255)));
  if (!tensor.starts_with(kAdapterRoot) || end.empty()) {
    return InFile(kAdapterWeightsFile, absl::StrCat("tensor ", shown,
                                                    " is not supported; expected names "
                                                    "base_model.model.MODULE.lora_A.weight and "
                                                    "lora_B.weight"));
  }
  tensor.remove_prefix(std::string_view(kAdapterRoot).size());
  tensor.remove_suffix(end.size());
  const std::vector<size_t>* const ops = layers.Find(tensor);
  const bool of_embedding = end == kEmbeddingA || end == kEmbeddingB;
  if (ops == nullptr || IsEmbedding(model, ops->front()) != of_embedding) {
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

// Returns the matrices of an op for the module `name` of a folder.
AdapterLayer LayerOf(const Model& model, size_t index, const std::string& name, int64_t rank) {
  if (const auto* op = std::get_if<EmbedOp>(&model.graph.ops[index])) {
    return {.op = index,
            .a = {absl::StrCat(name, std::string(kEmbeddingA)), {rank, op->table.shape[0]}},
            .b = {absl::StrCat(name, std::string(kEmbeddingB)), {op->table.shape[1], rank}}};
  }
  const auto& op = std::get<LinearOp>(model.graph.ops[index]);
  return {
      .op = index,
      .a = {absl::StrCat(name, std::string(kMatrixA)), {rank, model.graph.buffers[op.in].width}},
      .b = PartOfB(absl::StrCat(name, std::string(kMatrixB)), op, rank)};
}

// Returns the matrices of an op for a task of the model's checkpoint, where `module` has them.
AdapterLayer LayerOfTask(const Model& model, size_t index, const std::string& module,
                         int64_t task) {
  const int64_t tasks = std::ssize(model.config.task_adapters.names);
  const int64_t rank = model.config.task_adapters.rank;
  const std::string name = absl::StrCat(module, kTaskWeight);
  const bool embeds = IsEmbedding(model, index);
  AdapterLayer layer = LayerOf(model, index, module, rank);
  layer.transposed = embeds;
  if (embeds) {
    std::swap(layer.a.shape[0], layer.a.shape[1]);
    std::swap(layer.b.shape[0], layer.b.shape[1]);
  }
  layer.a.name = absl::StrCat(name, ".0.lora_A");
  layer.b.name = absl::StrCat(name, ".0.lora_B");
  for (TensorPart* const part : {&layer.a, &layer.b}) {
    part->first += task * part->shape[0] * part->shape[1];
    part->shape.insert(part->shape.begin(), tasks);
  }
  return layer;
}

absl::Status CheckTensors(const Adapter& adapter, const AdapterLayer& layer) {
  for (const TensorPart& part : {layer.a, layer.b}) {
    SLUICE_RETURN_IF_ERROR(adapter.tensors().Find(part.name, part.shape).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<AdapterLayer>> FindLayers(const Model& model, const Adapter& adapter) {
  const DenseLayers dense(model);
  std::set<std::string> modules;
  const std::vector<std::string> of_head =
      adapter.head ? adapter.head->classifier.saved_tensors() : std::vector<std::string>();
  for (const std::string& tensor : adapter.checkpoint.Names()) {
    if (std::ranges::count(of_head, tensor) > 0) continue;
    SLUICE_ASSIGN_OR_RETURN(std::string module, ModuleOfTensor(model, tensor, dense));
    if (adapter.head) SLUICE_RETURN_IF_ERROR(CheckBelowHead(model, tensor, module));
    modules.insert(std::move(module));
  }
  std::map<size_t, AdapterLayer> layers;
  for (const std::string& module : modules) {
    const std::string name = absl::StrCat(kAdapterRoot, module);
    for (const size_t index : *dense.Find(module)) {
      AdapterLayer layer = LayerOf(model, index, name, adapter.rank);
      if (const absl::Status found = CheckTensors(adapter, layer); !found.ok()) {
        return InFile(kAdapterWeightsFile, std::string(found.message()));
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

absl::StatusOr<std::shared_ptr<const Adapter>> ReadTask(const Model& model, size_t task) {
  const TaskAdaptersConfig& tasks = model.config.task_adapters;
  auto adapter = std::make_shared<Adapter>();
  adapter->name = tasks.names[task];
  adapter->rank = tasks.rank;
  adapter->scale = static_cast<float>(tasks.scale);
  adapter->shared = &model.checkpoint;
  for (size_t i = 0; i < model.graph.ops.size(); ++i) {
    const auto* const linear = std::get_if<LinearOp>(&model.graph.ops[i]);
    const auto* const embedding = std::get_if<EmbedOp>(&model.graph.ops[i]);
    const bool adaptable =
        linear != nullptr ? linear->adaptable() : embedding != nullptr && embedding->adaptable();
    if (!adaptable) continue;
    std::string module = linear != nullptr ? linear->weight.name : embedding->table.name;
    module.resize(module.size() - kWeight.size());
    if (!model.checkpoint.Lists(absl::StrCat(module, kTaskWeight, ".0.lora_A"))) continue;
    AdapterLayer layer = LayerOfTask(model, i, module, static_cast<int64_t>(task));
    SLUICE_RETURN_IF_ERROR(CheckTensors(*adapter, layer));
    adapter->layers.push_back(std::move(layer));
  }
  if (adapter->layers.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the weights have no tensors MODULE", kTaskWeight,
                     ".0.lora_A; remove lora_adaptations from config.json"));
  }
  return adapter;
}

}  // namespace

AdapterSource TaskSource(const Model* model, size_t task) {
  const std::string& name = model->config.task_adapters.names[task];
  return {name, [=]() -> absl::StatusOr<std::shared_ptr<const Adapter>> {
            auto adapter = ReadTask(*model, task);
            if (adapter.ok()) return adapter;
            return absl::Status(adapter.status().code(),
                                absl::StrCat("adapter ", model->config.task_adapters.names[task],
                                             ": ", adapter.status().message()));
          }};
}

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
