// A loaded model, without any device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/adapter.h"
#include "engine/model/checkpoint.h"
#include "engine/model/config.h"
#include "engine/model/directory.h"
#include "engine/model/graph.h"
#include "engine/model/output_heads.h"
#include "engine/model/output_layers.h"
#include "engine/model/span_weights.h"
#include "engine/model/speculation.h"
#include "engine/model/text_tasks.h"
#include "engine/model/tokenizer/tokenizer.h"

namespace sluice {

// An immutable snapshot of one version of a model. Requests hold one by shared_ptr, so that a
// reload never changes the model of an accepted request.
struct Model {
  std::string name;
  int64_t version = 1;
  ModelConfig config;
  std::string config_json;   // the text of the file that `config` was read from
  std::string content_hash;  // of a loaded model, see content_hash.h
  Graph graph;
  Checkpoint checkpoint;
  std::unique_ptr<const Tokenizer> tokenizer;  // nullptr if prompts are token ids only
  OutputLayers embedding;                      // without layers if the config has none
  OutputLayers vectors, term_weights;          // the heads of the config, if it has them
  std::optional<SpanWeights> spans;            // if the config has an extraction
  TextTasks tasks;
  std::optional<Classifier> classifier;  // if the config has one
  std::optional<ItemHead> items;         // if the graph has a head
  // The adapters that are served from the start; none unless Graph::takes_adapters.
  std::vector<AdapterSource> adapters;
  int64_t adapter_memory_bytes = kAdapterMemory;  // the most bytes of loaded adapters
  SpeculationOptions speculation;
  std::shared_ptr<const Model> draft;  // drafts tokens for this model; nullptr if there is none
  // Makes the vectors of labels, as embeddings; nullptr unless an extraction reads rows without
  // labels.
  std::shared_ptr<const Model> labels;

  // Returns whether a next token can be drawn: there is a head, and attention is causal.
  bool generates() const { return config.has_lm_head && config.causal; }
};

// Settings of a served model from the daemon's configuration, in addition to its directory.
struct ModelOptions {
  std::optional<QuantizationConfig> quantization{};  // replaces config.json's
  std::optional<KvType> kv_dtype{};                  // also replaces config.json's
  // The folder of the adapters' folders. If empty, it is the folder `adapters` in the model's
  // directory. If there is none, the model takes no adapters.
  std::string adapters{};
  int64_t adapter_memory_bytes = kAdapterMemory;
  FileAccess weights = FileAccess::kMap;
  SpeculationOptions speculation{};
  std::shared_ptr<const Model> draft{};  // the model that `speculation` names

  bool operator==(const ModelOptions&) const = default;
};

// Reads config.json, and the files of sentence-transformers if there are any.
absl::StatusOr<ModelConfig> ReadModelConfig(const Directory& directory);

// Opens the folder of the adapters' folders, see ModelOptions::adapters; nullopt if there is none.
absl::StatusOr<std::optional<Directory>> OpenAdapters(const Directory& directory,
                                                      const std::string& path);

// Reads `directory` (config.json, model.safetensors or shards with an index file). No file outside
// the directory is opened. Errors name the file and the field or tensor, or the option.
absl::StatusOr<std::shared_ptr<const Model>> LoadModel(const std::string& name, int64_t version,
                                                       const std::string& directory,
                                                       const ModelOptions& options = {});
absl::StatusOr<std::shared_ptr<const Model>> LoadModel(const std::string& name, int64_t version,
                                                       const Directory& directory,
                                                       const ModelOptions& options = {});

}  // namespace sluice
