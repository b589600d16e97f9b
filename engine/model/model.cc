#include "engine/model/model.h"

#include <algorithm>
#include <span>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/error_at.h"
#include "base/status_macros.h"
#include "engine/model/check_draft.h"
#include "engine/model/content_hash.h"
#include "engine/model/directory.h"
#include "engine/model/families/family.h"
#include "engine/model/head_files.h"
#include "engine/model/pair_frame.h"
#include "engine/model/sentence_files.h"
#include "engine/model/tensor_names.h"
#include "engine/model/tokenizer_files.h"

namespace sluice {
namespace {

constexpr char kConfigFile[] = "config.json";
constexpr char kAdaptersFolder[] = "adapters";
constexpr char kLabelsFolder[] = "labels";
constexpr size_t kMaxConfigBytes = size_t{1} << 20;

// Finds the heads that the host computes.
absl::Status FindOutputHeads(Model* model) {
  const ClassifierConfig& classifier = model->config.serving.classifier;
  for (const GraphOp& op : model->graph.ops) {
    const auto* head = std::get_if<HeadOp>(&op);
    if (head == nullptr) continue;
    SLUICE_RETURN_IF_ERROR(CheckStoredHead(*model, *head));
    // An error is not returned here: a backend reads the same tensors and reports it.
    absl::StatusOr<ItemHead> found = ItemHead::Find(model->config, *head, model->checkpoint);
    if (classifier.logits) SLUICE_RETURN_IF_ERROR(found.status());
    if (found.ok()) model->items = *std::move(found);
  }
  if (model->config.serving.extraction) {
    SLUICE_ASSIGN_OR_RETURN(model->spans, SpanWeights::Find(model->config, model->checkpoint));
  }
  if (classifier.logits) {
    model->classifier = Classifier::OfLogits(*classifier.logits, *model->items);
  } else if (classifier.labels > 0) {
    SLUICE_ASSIGN_OR_RETURN(model->classifier,
                            Classifier::Find(model->config, classifier, model->checkpoint));
  }
  return absl::OkStatus();
}

// Loads the layers after the states. Files next to the weights are in the Transformer's folder.
absl::Status LoadOutputLayers(const Directory& directory, const Directory& transformer,
                              FileAccess access, Model* model) {
  const ServingConfig& serving = model->config.serving;
  const auto load = [&](std::span<const DenseConfig> dense, OutputLayers* layers) -> absl::Status {
    const bool folders = !dense.empty() && !dense.front().folder.empty();
    SLUICE_ASSIGN_OR_RETURN(*layers, OutputLayers::Load(dense, folders ? directory : transformer,
                                                        model->checkpoint, access));
    return absl::OkStatus();
  };
  SLUICE_RETURN_IF_ERROR(load(serving.dense, &model->embedding));
  if (serving.vectors) SLUICE_RETURN_IF_ERROR(load(serving.vectors->dense, &model->vectors));
  if (!serving.term_weights) return absl::OkStatus();
  return load(serving.term_weights->dense, &model->term_weights);
}

// Gives the weights that have adapters for tasks the names of other weights.
void ShareTaskWeights(Checkpoint* checkpoint) {
  const std::string end = absl::StrCat(kTaskWeight, ".original");
  for (const std::string& name : checkpoint->Names()) {
    if (!name.ends_with(end)) continue;
    checkpoint->Share(name.substr(0, name.size() - end.size()) + ".weight", name);
  }
}

absl::Status LoadAdapters(const Directory& directory, const ModelOptions& options, Model* model) {
  const std::vector<std::string>& tasks = model->config.task_adapters.names;
  for (size_t task = 0; task < tasks.size(); ++task) {
    model->graph.takes_adapters = true;
    AdapterSource source = TaskSource(model, task);
    SLUICE_RETURN_IF_ERROR(source.read().status());
    model->adapters.push_back(std::move(source));
  }
  SLUICE_ASSIGN_OR_RETURN(std::optional<Directory> opened,
                          OpenAdapters(directory, options.adapters));
  if (!opened) return absl::OkStatus();
  model->graph.takes_adapters = true;
  const auto folder = std::make_shared<const Directory>(*std::move(opened));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListAdapters(*folder));
  for (const std::string& name : names) {
    if (std::ranges::count(tasks, name) > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("adapter ", name, ": the model's own checkpoint has an adapter of this ",
                       "name; rename the folder"));
    }
    AdapterSource source = SourceOf(name, model, folder, options.weights);
    SLUICE_RETURN_IF_ERROR(source.read().status());
    model->adapters.push_back(std::move(source));
  }
  return absl::OkStatus();
}

// Returns an error unless the model embeds texts in vectors of this width.
absl::Status CheckLabelModel(const Model& labels, int64_t width) {
  const ModelConfig& config = labels.config;
  if (config.causal || config.serving.multi_vector || labels.tokenizer == nullptr) {
    return absl::InvalidArgumentError(
        "the encoder of labels needs a tokenizer, attention in both directions and one embedding "
        "for each text");
  }
  if (config.embedding_size() != width) {
    return absl::InvalidArgumentError(absl::StrCat("an embedding has ", config.embedding_size(),
                                                   " values; expected ", width,
                                                   ", sluice.extraction.width of the model"));
  }
  for (const TextTemplate::Element& part : labels.tokenizer->templates().single.parts) {
    if (part.type == 0 || part.type < config.token_types) continue;
    return absl::InvalidArgumentError(absl::StrCat("the tokenizer's template has type ", part.type,
                                                   "; the model has ", config.token_types,
                                                   " types"));
  }
  return absl::OkStatus();
}

// Loads the encoder of labels if the rows of the model's extraction have no labels.
absl::Status LoadLabelModel(const Directory& directory, const ModelOptions& options, Model* model) {
  const std::optional<ExtractionConfig>& extraction = model->config.serving.extraction;
  if (!extraction || extraction->labels_in_row()) return absl::OkStatus();
  const auto load = [&]() -> absl::StatusOr<std::shared_ptr<const Model>> {
    SLUICE_ASSIGN_OR_RETURN(const Directory folder, directory.OpenFolder(kLabelsFolder));
    SLUICE_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(folder));
    if (config.serving.extraction) {
      return absl::InvalidArgumentError("the encoder of labels has an extraction of its own");
    }
    SLUICE_ASSIGN_OR_RETURN(
        std::shared_ptr<const Model> labels,
        LoadModel(absl::StrCat(model->name, "/", kLabelsFolder), model->version, folder,
                  {.quantization = options.quantization, .weights = options.weights}));
    SLUICE_RETURN_IF_ERROR(CheckLabelModel(*labels, extraction->width));
    return labels;
  };
  absl::StatusOr<std::shared_ptr<const Model>> labels = load();
  if (!labels.ok()) return ErrorAt(kLabelsFolder, labels.status());
  model->labels = *std::move(labels);
  return absl::OkStatus();
}

absl::Status LoadTextFiles(const Directory& directory, Model* model) {
  ModelConfig& config = model->config;
  SLUICE_RETURN_IF_ERROR(LoadEndTokens(directory, &config));
  if (config.byte_tokenizer) {
    model->tokenizer = MakeByteTokenizer(config.bos_token_id);
    return absl::OkStatus();
  }
  if (config.no_tokenizer) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(
      model->tokenizer,
      LoadTokenizer(directory, config.vocab_size, config.serving.lower_case, &config.warnings));
  if (model->tokenizer == nullptr) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const auto specials, ReadSpecialNames(directory));
  SLUICE_ASSIGN_OR_RETURN(model->tasks, FindTasks(config, *model->tokenizer, specials));
  return absl::OkStatus();
}

// Returns whether a tensor of the head itself is missing.
bool LacksHead(const ModelConfig& config, const Checkpoint& checkpoint) {
  const TensorNames& names = config.family->names;
  const auto lacks = [&](const std::string& name) { return !checkpoint.Lists(name); };
  if (config.head_transform) return lacks(absl::StrCat(names.head_dense, ".weight"));
  return !config.tie_word_embeddings && lacks(names.head);
}

// Serves the states of a checkpoint that was saved without the head of its architecture, as many
// embedding models are. A decoder generates unless modules.json states another use, so its head
// must not be missing.
void DropMissingHead(const Checkpoint& checkpoint, ModelConfig* config) {
  const bool embeds = !config->causal || config->serving.sentence_modules;
  const ServingConfig& serving = config->serving;
  if (!config->has_lm_head || !embeds || serving.sparse || serving.classifier.logits) return;
  if (!LacksHead(*config, checkpoint)) return;
  config->has_lm_head = false;
  config->warnings.push_back(absl::StrCat("the weights have no head, although config.json names ",
                                          config->architecture,
                                          "; the model serves the states of its last layer"));
}

absl::StatusOr<ModelConfig> ReadModelConfig(const Directory& directory,
                                            const Directory& transformer, std::string* text) {
  SLUICE_ASSIGN_OR_RETURN(*text, transformer.Read(kConfigFile, kMaxConfigBytes));
  auto config = ParseModelConfig(*text);
  if (!config.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(kConfigFile, ": ", config.status().message()));
  }
  SLUICE_RETURN_IF_ERROR(ReadSentenceFiles(directory, transformer, &*config));
  SLUICE_RETURN_IF_ERROR(ReadPairFrame(directory, &*config));
  SLUICE_RETURN_IF_ERROR(ReadHeadFiles(transformer, !config->serving.sentence_modules, &*config));
  return config;
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const Directory& directory) {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<Directory> inner, OpenTransformerFolder(directory));
  std::string text;
  return ReadModelConfig(directory, inner ? *inner : directory, &text);
}

absl::StatusOr<std::optional<Directory>> OpenAdapters(const Directory& directory,
                                                      const std::string& path) {
  if (path.empty() && !directory.Has(kAdaptersFolder)) return std::nullopt;
  absl::StatusOr<Directory> folder =
      path.empty() ? directory.OpenFolder(kAdaptersFolder) : Directory::Open(path);
  if (!folder.ok()) return ErrorAt("adapters", folder.status());
  return *std::move(folder);
}

absl::StatusOr<std::shared_ptr<const Model>> LoadModel(const std::string& name, int64_t version,
                                                       const std::string& path,
                                                       const ModelOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const auto directory, Directory::Open(path));
  return LoadModel(name, version, directory, options);
}

absl::StatusOr<std::shared_ptr<const Model>> LoadModel(const std::string& name, int64_t version,
                                                       const Directory& directory,
                                                       const ModelOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const std::optional<Directory> inner, OpenTransformerFolder(directory));
  const Directory& transformer = inner ? *inner : directory;
  std::string text;
  SLUICE_ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(directory, transformer, &text));
  if (options.quantization) config.quantization = *options.quantization;
  if (options.kv_dtype) config.kv_dtype = *options.kv_dtype;
  SLUICE_ASSIGN_OR_RETURN(auto checkpoint, Checkpoint::Open(transformer, options.weights));
  checkpoint.SetOwner(absl::StrCat("model ", name, " version ", version));
  if (!config.weights_part.empty()) checkpoint.LeaveOut(config.weights_part);
  if (config.task_adapters.rank > 0) ShareTaskWeights(&checkpoint);
  for (const SharedTensor& shared : SharedTensors(config)) {
    checkpoint.Share(shared.name, shared.other);
  }
  DropMissingHead(checkpoint, &config);

  auto model = std::make_shared<Model>();
  model->name = name;
  model->version = version;
  model->graph = BuildGraph(config, FindSpelling(*config.family, [&](const std::string& tensor) {
                              return checkpoint.Has(tensor);
                            }));
  model->config = std::move(config);
  model->config_json = std::move(text);
  model->checkpoint = std::move(checkpoint);
  model->speculation = options.speculation;
  model->draft = options.draft;
  model->adapter_memory_bytes = options.adapter_memory_bytes;
  SLUICE_RETURN_IF_ERROR(CheckInt8Depth(*model));
  SLUICE_RETURN_IF_ERROR(LoadOutputLayers(directory, transformer, options.weights, model.get()));
  SLUICE_RETURN_IF_ERROR(FindOutputHeads(model.get()));
  SLUICE_RETURN_IF_ERROR(LoadTextFiles(transformer, model.get()));
  SLUICE_RETURN_IF_ERROR(LoadTermTables(model->config, directory, &model->tasks));
  SLUICE_RETURN_IF_ERROR(LoadAdapters(directory, options, model.get()));
  SLUICE_RETURN_IF_ERROR(LoadLabelModel(directory, options, model.get()));
  if (model->draft != nullptr) SLUICE_RETURN_IF_ERROR(CheckDraft(*model, *model->draft));
  SLUICE_ASSIGN_OR_RETURN(model->content_hash, ContentHash(directory, *model));
  return model;
}

}  // namespace sluice
