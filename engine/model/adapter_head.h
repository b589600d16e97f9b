// The classifier that an adapter has in place of the model's.
//
// PEFT saves the modules that adapter_config.json lists in `modules_to_save` next to the matrices.
// The parts of a classifier that are not saved are the model's. The adapter's folder may have the
// config.json of the trained model, with the names of the labels.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/model/checkpoint.h"
#include "engine/model/directory.h"
#include "engine/model/output_heads.h"
#include "engine/model/serving_config.h"

namespace sluice {

struct Model;

struct AdapterHead {
  std::shared_ptr<const ClassifierConfig> config;
  Classifier classifier;
};

// Reads the classifier of an adapter whose adapter_config.json is `settings` and whose tensors are
// in `saved`; nullopt if the adapter saves no modules. Returns InvalidArgument, which names the
// file and the module or tensor, for modules that are not a part of a classifier of the model.
absl::StatusOr<std::optional<AdapterHead>> ReadAdapterHead(const Model& model,
                                                           const Directory& folder,
                                                           const nlohmann::json& settings,
                                                           const Checkpoint& saved);

}  // namespace sluice
