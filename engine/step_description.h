// A description of a step of a served model: the data of the report of `sluice plan`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/attention_variant.h"
#include "engine/model/model.h"

namespace sluice {

// A step of sequences of equal `context`. Each sequence computes its last `tokens` tokens. In a
// request, 0 means the default of CompleteStep.
struct StepSizes {
  int64_t sequences = 0;  // 1
  int64_t tokens = 0;     // 1, or the context if attention is in both directions
  int64_t context = 0;    // 4096, or the model's longest sequence if that is shorter

  bool operator==(const StepSizes&) const = default;
};

struct StepDescription {
  std::shared_ptr<const Model> model;
  StepSizes step;
  AttentionVariant attention{AttentionVariant::Kind::kOnePass};  // not kAuto
  std::string attention_reason = {};                             // in a sentence
  std::string profile = {};  // numerics profile of the served model; empty if unknown
  // For each op of the graph: the bytes per weight, see WeightBytes.
  std::vector<double> weight_bytes = {};
  // For each op of the graph: its measured time in a step. Empty if nothing was measured.
  std::vector<double> seconds = {};
};

// Replaces zeros by defaults. Returns InvalidArgument if the model does not support the sizes.
absl::StatusOr<StepSizes> CompleteStep(const ModelConfig& config, StepSizes step);

// Returns for each op the bytes per weight, as backends store the weights: 1 in int8; in int4, 0.5
// plus the weight's share of its group's scale and zero point; 2 in bf16. Tables keep the size of
// their dtype. All other weights take 4 (f32). Without a checkpoint, the config's dtype is used.
std::vector<double> WeightBytes(const Model& model);

// Returns whether a layer or the head multiplies weights that are stored in bf16. Routers do not,
// because they are computed in f32.
bool MultipliesBf16Weights(const Model& model);

// Returns about the memory that a backend will use for the weights of a model: tables, layers and
// head as WeightBytes describes them, and the tables of rotary positions. A tensor that several ops
// use counts once for each, because each op keeps its own.
int64_t EstimateWeightMemory(const Model& model);

// Returns the same of a model and its encoder of labels, if it has one.
int64_t EstimateServedWeightMemory(const Model& model);

}  // namespace sluice
