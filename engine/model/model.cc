#include "engine/model/model.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "engine/model/directory.h"
#include "engine/model/tensor_names.h"
#include "engine/model/tokenizer_files.h"

namespace sluice {
namespace {

constexpr char kConfigFile[] = "config.json";
constexpr size_t kMaxConfigBytes = size_t{1} << 20;

// Finds the heads that the host computes.
absl::Status FindOutputHeads(Model* model) {
  if (model->config.serving.classifier.labels > 0) {
    absl::StatusOr<Classifier> found = Classifier::Find(model->config, model->checkpoint);
    if (!found.ok()) return found.status();
    model->classifier = *std::move(found);
  }
  for (const GraphOp& op : model->graph.ops) {
    const auto* head = std::get_if<HeadOp>(&op);
    if (head == nullptr) continue;
    // An error is not returned here: a backend reads the same tensors and reports it.
    absl::StatusOr<ItemHead> found = ItemHead::Find(model->config, *head, model->checkpoint);
    if (found.ok()) model->items = *std::move(found);
  }
  return absl::OkStatus();
}

absl::Status LoadTextFiles(const Directory& directory, Model* model) {
  ModelConfig& config = model->config;
  auto ends = LoadEndTokens(directory, config.vocab_size);
  if (!ends.ok()) return ends.status();
  if (!ends->empty()) config.eos_token_ids = *std::move(ends);
  if (config.byte_tokenizer) {
    model->tokenizer = MakeByteTokenizer(config.bos_token_id);
    return absl::OkStatus();
  }
  if (config.no_tokenizer) return absl::OkStatus();
  auto tokenizer = LoadTokenizer(directory, config.vocab_size);
  if (!tokenizer.ok()) return tokenizer.status();
  model->tokenizer = *std::move(tokenizer);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Model>> LoadModel(const std::string& name, int64_t version,
                                                       const std::string& path) {
  const auto directory = Directory::Open(path);
  if (!directory.ok()) return directory.status();
  return LoadModel(name, version, *directory);
}

absl::StatusOr<std::shared_ptr<const Model>> LoadModel(const std::string& name, int64_t version,
                                                       const Directory& directory) {
  auto text = directory.Read(kConfigFile, kMaxConfigBytes);
  if (!text.ok()) return text.status();
  auto config = ParseModelConfig(*text);
  if (!config.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(kConfigFile, ": ", config.status().message()));
  }
  auto checkpoint = Checkpoint::Open(directory);
  if (!checkpoint.ok()) return checkpoint.status();

  auto model = std::make_shared<Model>();
  model->name = name;
  model->version = version;
  model->graph = BuildGraph(*config, FindSpelling(config->family, [&](const std::string& tensor) {
    return checkpoint->Has(tensor);
  }));
  model->config = *std::move(config);
  model->checkpoint = *std::move(checkpoint);
  absl::Status status = FindOutputHeads(model.get());
  if (status.ok()) status = LoadTextFiles(directory, model.get());
  if (!status.ok()) return status;
  return model;
}

}  // namespace sluice
