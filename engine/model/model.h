// A loaded model: what is known of it without any device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/model/checkpoint.h"
#include "engine/model/config.h"
#include "engine/model/directory.h"
#include "engine/model/graph.h"
#include "engine/model/output_heads.h"
#include "engine/model/tokenizer/tokenizer.h"

namespace sluice {

// Immutable snapshot of one model version. Requests hold one by shared_ptr, so that a reload never
// changes what an accepted request runs on.
struct Model {
  std::string name;
  int64_t version = 1;
  ModelConfig config;
  Graph graph;
  Checkpoint checkpoint;
  std::unique_ptr<const Tokenizer> tokenizer;  // nullptr: token ids only
  std::optional<Classifier> classifier;        // where the config has one
  std::optional<ItemHead> items;               // where the graph has a head

  // Has a next token to be drawn: a head, and attention that does not look ahead.
  bool generates() const { return config.has_lm_head && config.causal; }
};

// Reads `directory` (config.json, model.safetensors or shards with an index file). Nothing outside
// the directory is opened. Errors name the file and the field or tensor.
absl::StatusOr<std::shared_ptr<const Model>> LoadModel(const std::string& name, int64_t version,
                                                       const std::string& directory);
absl::StatusOr<std::shared_ptr<const Model>> LoadModel(const std::string& name, int64_t version,
                                                       const Directory& directory);

}  // namespace sluice
